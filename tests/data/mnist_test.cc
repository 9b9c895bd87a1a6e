#include "tandem/data/mnist.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <zlib.h>

#include <filesystem>

#include "data/support.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string idx(std::uint32_t magic, const std::vector<std::uint32_t>& sizes, const std::string& values) {
  std::string bytes = big_endian(magic);
  for (const auto size : sizes) bytes += big_endian(size);
  return bytes + values;
}

// Three pictures of 2x4; the first pixel is 0, the next 1, and so on.
std::string images() {
  std::string values(24, 0);
  for (int i = 0; i < 24; ++i) values[i] = static_cast<char>(i);
  return idx(0x803, {3, 2, 4}, values);
}

std::string labels() {
  return idx(0x801, {3}, {7, 0, 9});
}

void write_gzip(const std::filesystem::path& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

class MnistTest : public testing::Test {
 protected:
  MnistTest() {
    write_file(images_, images());
    write_file(labels_, labels());
  }

  std::string error() {
    return message_of<DataLoss>([&] { mnist(dir_.path(), Split::kTrain); });
  }

  TempFolder dir_;
  std::filesystem::path images_ = dir_ / "train-images-idx3-ubyte";
  std::filesystem::path labels_ = dir_ / "train-labels-idx1-ubyte";
};

void expect_the_three(const Dataset& dataset) {
  EXPECT_EQ(dataset.cardinality(), 3);
  auto batches = dataset.batch(3).iterate();
  const auto batch = batches.next();
  EXPECT_TRUE(batch->x.tensor().equal(torch::arange(24, torch::kByte).view({3, 1, 2, 4})));
  EXPECT_TRUE(batch->y.tensor().equal(torch::tensor({7, 0, 9}, torch::kLong)));
}

TEST_F(MnistTest, ReadsPlainFiles) {
  expect_the_three(mnist(dir_.path(), Split::kTrain));
}

TEST_F(MnistTest, ReadsGzippedFilesOfTheTestSplit) {
  write_gzip(dir_ / "t10k-images-idx3-ubyte.gz", images());
  write_gzip(dir_ / "t10k-labels-idx1-ubyte.gz", labels());
  expect_the_three(mnist(dir_.path(), Split::kTest));
}

TEST_F(MnistTest, NamesTheFileThatIsMissing) {
  EXPECT_EQ(message_of<NotFound>([&] { mnist(dir_.path(), Split::kTest); }),
            (dir_ / "t10k-labels-idx1-ubyte").string() +
                ": no such file, nor t10k-labels-idx1-ubyte.gz; expected an idx file of the MNIST format");
}

TEST_F(MnistTest, TellsAWrongKindOfFile) {
  write_file(images_, labels());
  EXPECT_EQ(error(), images_.string() +
                         ": 0x00000801 at byte 0: expected 0x00000803, an idx file of bytes with 3 "
                         "dimensions");
  write_file(images_, "");
  EXPECT_EQ(error(), images_.string() +
                         ": the file ends at byte 0: expected 0x00000803, an idx file of bytes with 3 "
                         "dimensions");
}

TEST_F(MnistTest, TellsWhereAFileEndsTooEarly) {
  std::filesystem::resize_file(images_, 39);
  EXPECT_EQ(error(), images_.string() +
                         ": the file ends at byte 39: expected 40 bytes, 16 of header and 3x2x4 of values");
  std::filesystem::resize_file(images_, 10);
  EXPECT_EQ(error(),
            images_.string() + ": the file ends at byte 10: expected the size of dimension 1, 1 to 16777216");
}

TEST_F(MnistTest, TellsWhereAFileGoesOnTooLong) {
  write_file(labels_, labels() + '\1');
  EXPECT_EQ(error(), labels_.string() +
                         ": the file goes on at byte 11: expected 11 bytes, 8 of header and 3 of values");
}

TEST_F(MnistTest, RefusesSizesThatCannotBe) {
  write_file(images_, idx(0x803, {3, 0, 4}, ""));
  EXPECT_EQ(error(), images_.string() + ": 0 at byte 8: expected the size of dimension 1, 1 to 16777216");
  write_file(images_, idx(0x803, {3, 2, 0xffffffff}, ""));
  EXPECT_EQ(error(),
            images_.string() + ": 4294967295 at byte 12: expected the size of dimension 2, 1 to 16777216");
  // Promises 4 PiB; must not try to get them.
  write_file(images_, idx(0x803, {3, 1 << 24, 1 << 24}, "abc"));
  EXPECT_NE(error().find("the file ends at byte 19"), std::string::npos);
}

TEST_F(MnistTest, TellsWhereALabelIsWrong) {
  write_file(labels_, idx(0x801, {3}, {7, 10, 9}));
  EXPECT_EQ(error(), labels_.string() + ": label 10 at byte 9: expected 0 to 9");
}

TEST_F(MnistTest, NamesBothFilesWhenTheirNumbersDiffer) {
  write_file(labels_, idx(0x801, {2}, {7, 1}));
  EXPECT_EQ(error(), images_.string() + ": 3 images at byte 4: expected 2, the number of labels in " +
                         labels_.string());
}

class GzippedMnistTest : public MnistTest {
 protected:
  GzippedMnistTest() {
    std::filesystem::remove(images_);
    // Noise, so that a cut file still unpacks to something.
    std::string values(100 * 30 * 30, 0);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i * i * 2654435761u >> 13);
    write_gzip(packed_, idx(0x803, {100, 30, 30}, values));
  }

  std::filesystem::path packed_ = dir_ / "train-images-idx3-ubyte.gz";
};

TEST_F(GzippedMnistTest, TellsACutOffFile) {
  const auto whole = std::filesystem::file_size(packed_);
  const std::string expected = " (unpacked): expected 90016 bytes, 16 of header and 100x30x30 of values";
  for (const auto size : {whole - 1, whole / 2}) {
    std::filesystem::resize_file(packed_, size);
    const auto message = error();
    EXPECT_EQ(message.find(packed_.string() + ": the gzip file is cut off at byte "), 0u) << message;
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

TEST_F(GzippedMnistTest, TellsADamagedFile) {
  std::fstream file(packed_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-6, std::ios::end);  // the checksum
  file.put('\x55').put('\xaa');
  file.close();
  const auto message = error();
  EXPECT_EQ(message.find(packed_.string() + ": the gzip file is damaged at byte "), 0u) << message;
}

TEST_F(GzippedMnistTest, TellsATooShortAndATooLongOne) {
  write_gzip(packed_, images() + "x");
  EXPECT_EQ(
      error(),
      packed_.string() +
          ": the file goes on at byte 40 (unpacked): expected 40 bytes, 16 of header and 3x2x4 of values");
  write_gzip(packed_, images().substr(0, 30));
  EXPECT_EQ(error(),
            packed_.string() +
                ": the file ends at byte 30 (unpacked): expected 40 bytes, 16 of header and 3x2x4 of values");
}

// The package is one that tandem is built with.
TEST(FashionMnistTest, IsWhereDebianPutsIt) {
  const auto test = mnist(fashion_mnist_dir(), Split::kTest);
  EXPECT_EQ(test.cardinality(), 10000);
  EXPECT_EQ(test.iterate().next()->x.tensor().sizes(), (at::IntArrayRef{1, 28, 28}));
}

TEST(PrepareMnistTest, ScalesBytesToTheRangeFromZeroToOne) {
  const Batch out = prepare_mnist(
      {at::Tensor(torch::tensor({0, 51, 255}, torch::kByte).view({1, 1, 3})), at::Tensor(torch::tensor(3))});
  EXPECT_TRUE(torch::allclose(out.x, torch::tensor({0.0, 0.2, 1.0}).to(torch::kFloat).view({1, 1, 3})));
  EXPECT_EQ(out.y.tensor().item<std::int64_t>(), 3);
  EXPECT_THROW(prepare_mnist({at::Tensor(torch::ones({1, 2, 2}))}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::data
