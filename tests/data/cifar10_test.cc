#include "tandem/data/cifar10.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "data/support.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

constexpr int kRecord = 3073;

// Picture i has label i mod 10, and every pixel of channel c is i + c.
std::string records(int count, int first = 0) {
  std::string bytes;
  for (int i = first; i < first + count; ++i) {
    bytes += static_cast<char>(i % 10);
    for (int channel = 0; channel < 3; ++channel) bytes += std::string(1024, static_cast<char>(i + channel));
  }
  return bytes;
}

class Cifar10Test : public testing::Test {
 protected:
  void write_set(const std::string& folder, int records_per_file) {
    for (int i = 0; i < 5; ++i)
      write_file(batch_file(folder, i + 1), records(records_per_file, i * records_per_file));
    write_file(dir_ / folder / "test_batch.bin", records(records_per_file));
  }

  std::filesystem::path batch_file(const std::string& folder, int number) {
    return dir_ / folder / ("data_batch_" + std::to_string(number) + ".bin");
  }

  std::string read_error(Split split) {
    return message_of<DataLoss>([&] { cifar10(dir_.path(), split); });
  }

  TempFolder dir_;
};

TEST_F(Cifar10Test, ReadsTheFilesInOrder) {
  write_set("", 4);
  const auto train = cifar10(dir_.path(), Split::kTrain);
  EXPECT_EQ(train.cardinality(), 20);
  auto batches = train.batch(20).iterate();
  const auto batch = batches.next();
  EXPECT_EQ(batch->x.tensor().sizes(), (at::IntArrayRef{20, 3, 32, 32}));
  EXPECT_EQ(batch->x.tensor().scalar_type(), torch::kByte);
  EXPECT_TRUE(batch->y.tensor().equal(torch::arange(20) % 10));
  const at::Tensor expected = torch::arange(20).view({20, 1, 1, 1}) + torch::arange(3).view({1, 3, 1, 1});
  EXPECT_TRUE(batch->x.tensor().equal(expected.expand({20, 3, 32, 32}).to(torch::kByte)));
  EXPECT_EQ(cifar10(dir_.path(), Split::kTest).cardinality(), 4);
}

TEST_F(Cifar10Test, FindsTheFolderOfTheArchive) {
  write_set("cifar-10-batches-bin", 1);
  EXPECT_EQ(cifar10(dir_.path(), Split::kTrain).cardinality(), 5);
  EXPECT_EQ(cifar10(dir_.path(), Split::kTest).cardinality(), 1);
}

TEST_F(Cifar10Test, NamesTheFileThatIsMissing) {
  EXPECT_EQ(message_of<NotFound>([&] { cifar10(dir_.path(), Split::kTest); }),
            dir_.path() +
                ": no CIFAR-10 files; expected test_batch.bin of CIFAR-10's binary version there or in "
                "its folder cifar-10-batches-bin");
  EXPECT_NE(
      message_of<NotFound>([&] { cifar10("/no/where", Split::kTrain); }).find("/no/where: no such folder"),
      std::string::npos);
  EXPECT_NE(
      message_of<NotFound>([] { cifar10(std::string(5000, 'x'), Split::kTrain); }).find("name too long"),
      std::string::npos);
  write_set("", 2);
  std::filesystem::remove(batch_file("", 3));
  EXPECT_EQ(message_of<NotFound>([&] { cifar10(dir_.path(), Split::kTrain); }),
            batch_file("", 3).string() +
                ": no such file; expected CIFAR-10's binary version, records of 3073 bytes");
}

TEST_F(Cifar10Test, TellsWhereATruncatedFileEnds) {
  write_set("", 3);
  std::filesystem::resize_file(batch_file("", 2), 2 * kRecord + 100);
  EXPECT_EQ(read_error(Split::kTrain), batch_file("", 2).string() +
                                           ": 6246 bytes, and the last whole record ends at byte 6146: "
                                           "expected whole records of 3073 bytes (a "
                                           "label and 3x32x32 pixels)");
  std::filesystem::resize_file(batch_file("", 2), 0);
  EXPECT_NE(read_error(Split::kTrain).find(": 0 bytes"), std::string::npos);
}

TEST_F(Cifar10Test, NamesAFileThatIsShorterThanItsSiblings) {
  write_set("", 3);
  std::filesystem::resize_file(batch_file("", 4), 2 * kRecord);
  EXPECT_EQ(read_error(Split::kTrain),
            batch_file("", 4).string() +
                ": 2 records, the file ends at byte 6146: expected 3 records, as in " +
                batch_file("", 1).string());
}

TEST_F(Cifar10Test, ExpectsAFullTestFileBesideFullTrainingFiles) {
  write_set("", 3);
  EXPECT_EQ(cifar10(dir_.path(), Split::kTest).cardinality(), 3);
  // Sparse: only its size is looked at.
  std::filesystem::resize_file(batch_file("", 1), 10000 * kRecord);
  EXPECT_EQ(read_error(Split::kTest),
            (dir_ / "test_batch.bin").string() +
                ": 3 records, the file ends at byte 9219: expected 10000 records, as in " +
                batch_file("", 1).string());
}

TEST_F(Cifar10Test, TellsWhereALabelIsWrong) {
  write_set("", 3);
  auto bytes = records(3);
  bytes[2 * kRecord] = 10;
  write_file(dir_ / "test_batch.bin", bytes);
  EXPECT_EQ(read_error(Split::kTest),
            (dir_ / "test_batch.bin").string() + ": label 10 at byte 6146: expected 0 to 9");
  bytes[kRecord] = static_cast<char>(255);
  write_file(dir_ / "test_batch.bin", bytes);
  EXPECT_EQ(read_error(Split::kTest),
            (dir_ / "test_batch.bin").string() + ": label 255 at byte 3073: expected 0 to 9");
}

// Mean 4, variance (9 + 1 + 1 + 9) / 4 = 5.
TEST(StandardizeImageTest, AgreesWithAValueWorkedOutByHand) {
  for (const auto type : {torch::kByte, torch::kFloat, torch::kLong}) {
    const at::Tensor out = standardize_image(torch::tensor({1, 3, 5, 7}, type).view({1, 2, 2}));
    EXPECT_EQ(out.scalar_type(), torch::kFloat);
    const at::Tensor expected = torch::tensor({-1.3416408, -0.4472136, 0.4472136, 1.3416408}).view({1, 2, 2});
    EXPECT_TRUE(torch::allclose(out, expected.to(torch::kFloat), 1e-6, 1e-6));
  }
}

// The deviation counts as 1 / sqrt(4) at least: 0, or 1/4 * sqrt(3) here.
TEST(StandardizeImageTest, DoesNotBlowUpAnEvenPicture) {
  EXPECT_TRUE(standardize_image(torch::full({2, 2}, 100, torch::kByte)).equal(torch::zeros({2, 2})));
  const at::Tensor out = standardize_image(torch::tensor({0, 0, 0, 1}, torch::kByte));
  EXPECT_TRUE(torch::allclose(out, torch::tensor({-0.5, -0.5, -0.5, 1.5}).to(torch::kFloat)));
  EXPECT_TRUE(standardize_image(torch::full({5, 5}, 1e6f)).equal(torch::zeros({5, 5})));
}

TEST(PrepareCifarTest, StandardizesThePictureAlone) {
  const at::Tensor image = torch::randint(256, {3, 32, 32}, torch::kByte);
  const Batch out = prepare_cifar({image, at::Tensor(torch::tensor(3))});
  const at::Tensor values = image.to(torch::kDouble);
  const at::Tensor expected = (values - values.mean()) / values.std(/*unbiased=*/false);
  EXPECT_TRUE(torch::allclose(out.x, expected.to(torch::kFloat), 1e-5, 1e-5));
  EXPECT_EQ(out.y.tensor().item<std::int64_t>(), 3);
}

// Against the same done with libtorch: pad, cut, flip, standardise.
TEST(AugmentCifarTest, CropsThePaddedPictureAndFlipsIt) {
  const at::Tensor image = torch::randint(256, {3, 32, 32}, torch::kByte);
  const at::Tensor padded = torch::constant_pad_nd(image, {4, 4, 4, 4});
  int flips = 0;
  for (int index = 0; index < 200; ++index) {
    ExampleRandom random(0, 0, index);
    ExampleRandom same(0, 0, index);
    const Batch out = augment_cifar({image, at::Tensor(torch::tensor(3))}, random);
    const auto top = same.uniform_int(9);
    const auto left = same.uniform_int(9);
    const bool flip = same.uniform_int(2) == 1;
    flips += flip;
    at::Tensor expected = padded.slice(1, top, top + 32).slice(2, left, left + 32);
    if (flip) expected = expected.flip(2);
    ASSERT_TRUE(out.x.tensor().equal(standardize_image(expected))) << top << " " << left << " " << flip;
  }
  EXPECT_NEAR(flips, 100, 40);
}

TEST(AugmentCifarTest, RefusesWhatIsNoCifarPicture) {
  ExampleRandom random(0, 0, 0);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              augment_cifar({at::Tensor(torch::ones({1, 28, 28}))}, random);
            }),
            "augment_cifar: expected a picture Byte [3, 32, 32], got Float [1, 28, 28]");
}

Batch all_of(const Dataset& dataset) {
  return *dataset.batch(dataset.cardinality()).iterate().next();
}

TEST(SyntheticCifar10Test, IsAFunctionOfSeedSplitAndIndex) {
  const Batch train = all_of(synthetic_cifar10(Split::kTrain, 30, 1));
  EXPECT_EQ(train.x.tensor().sizes(), (at::IntArrayRef{30, 3, 32, 32}));
  EXPECT_EQ(train.x.tensor().scalar_type(), torch::kByte);
  const Batch longer = all_of(synthetic_cifar10(Split::kTrain, 50, 1)).slice(0, 30);
  EXPECT_TRUE(longer.x.tensor().equal(train.x));
  EXPECT_TRUE(longer.y.tensor().equal(train.y));
  EXPECT_FALSE(all_of(synthetic_cifar10(Split::kTest, 30, 1)).x.tensor().equal(train.x));
  EXPECT_FALSE(all_of(synthetic_cifar10(Split::kTrain, 30, 2)).x.tensor().equal(train.x));
}

TEST(SyntheticCifar10Test, HasBalancedLabelsInNoOrder) {
  const at::Tensor labels = all_of(synthetic_cifar10(Split::kTrain, 200)).y;
  EXPECT_TRUE(labels.bincount().equal(torch::full({10}, 20)));
  EXPECT_FALSE(labels.slice(0, 0, 10).equal(labels.slice(0, 10, 20)));
  EXPECT_FALSE(labels.slice(0, 0, 10).equal(torch::arange(10)));
}

// The nearest class mean, a poor classifier, has to be right far more often than the 10 % of chance.
TEST(SyntheticCifar10Test, CanBeLearned) {
  const auto pixels = [](const Batch& batch) { return batch.x.tensor().to(torch::kFloat).flatten(1); };
  const Batch train = all_of(synthetic_cifar10(Split::kTrain, 1000));
  const Batch test = all_of(synthetic_cifar10(Split::kTest, 200));
  std::vector<at::Tensor> means;
  for (int label = 0; label < 10; ++label)
    means.push_back(pixels(train).index({train.y.tensor() == label}).mean(0));
  const at::Tensor nearest = torch::cdist(pixels(test), torch::stack(means)).argmin(1);
  EXPECT_GT((nearest == test.y.tensor()).to(torch::kFloat).mean().item<float>(), 0.3);
}

}  // namespace
}  // namespace tandem::data
