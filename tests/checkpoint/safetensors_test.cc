#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/errors.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::TempFolder;

const std::string kOracle = TANDEM_TEST_FILES "/oracles/small.safetensors";

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string with_length(const std::string& header, const std::string& data = {}) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

SafetensorsHeader parse(const std::string& header, const std::string& data = {}) {
  const std::string file = with_length(header, data);
  return parse_safetensors("x.safetensors", file, file.size());
}

// What is wrong with a file of this header and so many bytes of values.
std::string refusal(const std::string& header, std::size_t bytes = 0) {
  return message_of<DataLoss>([&] { parse(header, std::string(bytes, '\0')); });
}

template <typename Value>
std::vector<Value> values(const SafetensorsFile& file, const char* name) {
  const TensorEntry* tensor = file.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<Value> all(tensor->bytes() / sizeof(Value));
  file.read(*tensor, std::as_writable_bytes(std::span(all)));
  return all;
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  PosixFileSystem files;
  const SafetensorsFile file(files, kOracle);
  EXPECT_EQ(file.metadata(), (Metadata{{"made by", "safetensors for Python"}}));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "steps");
  EXPECT_EQ(file.find("weight")->dtype, "F32");
  EXPECT_EQ(file.find("weight")->shape, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(file.find("weights"), nullptr);
  EXPECT_EQ(values<std::int64_t>(file, "steps").size(), 1u);
  EXPECT_EQ(values<float>(file, "bias").size(), 4u);
}

TEST(Safetensors, WritesTheBytesThatPythonWrites) {
  PosixFileSystem files;
  const SafetensorsFile file(files, kOracle);
  const auto steps = values<std::int64_t>(file, "steps");
  const auto bias = values<float>(file, "bias");
  const auto weight = values<float>(file, "weight");
  const TempFolder folder;
  // In another order than they lie.
  write_safetensors(files, folder.file("a"),
                    std::vector<TensorBytes>{{"weight", "F32", {3, 4}, std::as_bytes(std::span(weight))},
                                             {"bias", "F32", {4}, std::as_bytes(std::span(bias))},
                                             {"steps", "I64", {1}, std::as_bytes(std::span(steps))}},
                    file.metadata());
  EXPECT_EQ(read(folder.file("a")), read(kOracle));
}

TEST(Safetensors, HasAGoldenFile) {
  const std::vector<std::uint16_t> halves{0x3c00, 0xc000};
  const std::vector<std::byte> flags{std::byte{1}, std::byte{0}, std::byte{1}};
  const std::vector<TensorBytes> tensors{{"flags", "BOOL", {3}, flags},
                                         {"é \"b\"", "F16", {2, 1}, std::as_bytes(std::span(halves))},
                                         {"none", "F64", {0, 2}, {}}};
  const SafetensorsLayout layout = lay_out_safetensors(tensors, {{"b", "2\n"}, {"a", "1"}});
  const std::string header =
      R"({"__metadata__":{"a":"1","b":"2\n"},"none":{"dtype":"F64","shape":[0,2],"data_offsets":[0,0]},)"
      R"("é \"b\"":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},)"
      R"("flags":{"dtype":"BOOL","shape":[3],"data_offsets":[4,7]}})";
  EXPECT_EQ(layout.beginning, with_length(header + std::string((8 - header.size() % 8) % 8, ' ')));
  const TempFolder folder;
  PosixFileSystem files;
  write_safetensors(files, folder.file("a"), tensors, {{"b", "2\n"}, {"a", "1"}});
  EXPECT_EQ(read(folder.file("a")), layout.beginning + std::string("\x00\x3c\x00\xc0\x01\x00\x01", 7));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  const SafetensorsFile file(files, folder.file("a"));
  EXPECT_EQ(values<std::uint16_t>(file, "é \"b\""), halves);
}

TEST(Safetensors, ReadsPartsOfATensor) {
  PosixFileSystem files;
  const SafetensorsFile file(files, kOracle);
  const auto whole = values<float>(file, "weight");
  std::vector<float> row(4);
  file.read(*file.find("weight"), std::as_writable_bytes(std::span(row)), 16);
  EXPECT_EQ(row, std::vector<float>(whole.begin() + 4, whole.begin() + 8));
  EXPECT_TRUE(has(message_of<InvalidArgument>(
                      [&] { file.read(*file.find("weight"), std::as_writable_bytes(std::span(row)), 40); }),
                  "16 bytes from byte 40 of tensor \"weight\": it has 48"));
}

TEST(Safetensors, TakesHeadersInAnyOrderOfKeysAndTensors) {
  const auto header = parse(
      R"( {"b":{"data_offsets":[4,8],"shape":[1],"dtype":"F32"},"a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}} )" +
          1,
      std::string(8, '\0'));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].bytes(), 4u);
  EXPECT_TRUE(parse("{}").tensors.empty());
  EXPECT_TRUE(parse(R"({"__metadata__":{}})").tensors.empty());
}

// The length of a header may look like the beginning of a pickle: 640 is 80 02.
TEST(Safetensors, TakesAHeaderWhoseLengthLooksLikeAPickle) {
  for (const std::size_t length : {640, 896, 1152, 1408}) {
    std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header += std::string(length - header.size(), ' ');
    EXPECT_EQ(parse(header, "x").tensors.size(), 1u);
  }
}

TEST(Safetensors, RefusesWhatIsNotOfTheFormat) {
  const auto tensor = [](const std::string& inside) { return R"({"a":{)" + inside + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_EQ(parse(tensor(good), std::string(8, 'x')).tensors.size(), 1u);

  EXPECT_TRUE(has(refusal("[]"), "does not begin with a brace"));
  EXPECT_TRUE(has(refusal("{"), "not JSON at byte 10"));
  EXPECT_TRUE(has(refusal(tensor(good) + "x", 8), "not JSON"));
  EXPECT_TRUE(has(refusal("{\"\xff\":1}"), "not JSON"));
  EXPECT_TRUE(has(refusal(R"({"a":1})"), "not a JSON object of tensors"));
  EXPECT_TRUE(has(refusal(R"({"a":[]})"), "not a JSON object of tensors"));
  EXPECT_TRUE(has(refusal(R"({"a":{}})"), "tensor \"a\" lacks dtype"));
  EXPECT_TRUE(has(refusal(tensor(good + R"(,"more":1)"), 8), "has the key \"more\""));
  EXPECT_TRUE(has(refusal(tensor(good + R"(,"dtype":"F32")"), 8), "has the key \"dtype\" twice"));
  EXPECT_TRUE(
      has(refusal(R"({"a":{)" + good + R"(},"a":{)" + good + "}}", 8), "tensor \"a\" is there twice"));
  EXPECT_TRUE(has(refusal(tensor(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), 8), "dtype \"F31\""));
  EXPECT_TRUE(
      has(refusal(tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8), "not of the form"));
  EXPECT_TRUE(
      has(refusal(tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8), "not of the form"));
  EXPECT_TRUE(
      has(refusal(tensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8), "not of the form"));
  EXPECT_TRUE(has(refusal(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8), "not of the form"));
  EXPECT_TRUE(
      has(refusal(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])"), 8), "not of the form"));
  EXPECT_TRUE(has(refusal(tensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), 8), "not of the form"));
  EXPECT_TRUE(has(refusal(R"({"__metadata__":{"a":1}})"), "not a map from text to text"));
  EXPECT_TRUE(has(refusal(R"({"__metadata__":{"a":"1","a":"2"}})"), "\"a\" is there twice"));
  EXPECT_TRUE(has(refusal(R"({"__metadata__":{},"__metadata__":{}})"), "__metadata__ is there twice"));
}

TEST(Safetensors, RefusesValuesThatDoNotFillTheFile) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(parse(two("[0,4]", "[4,8]"), std::string(8, 'x')).tensors.size(), 2u);
  EXPECT_TRUE(has(refusal(two("[0,4]", "[5,9]"), 9), "expected them to begin at 4"));  // a hole
  EXPECT_TRUE(has(refusal(two("[0,4]", "[3,7]"), 7), "expected them to begin at 4"));  // an overlap
  EXPECT_TRUE(has(refusal(two("[0,4]", "[0,4]"), 4), "expected them to begin at 4"));  // the same
  EXPECT_TRUE(has(refusal(two("[1,5]", "[5,9]"), 9), "expected them to begin at 0"));
  EXPECT_TRUE(has(refusal(two("[4,0]", "[0,4]"), 4), "tensor \"a\""));
  EXPECT_TRUE(has(refusal(two("[0,4]", "[4,8]"), 9), "has"));                         // more behind
  EXPECT_TRUE(has(refusal(two("[0,4]", "[4,8]"), 7), "where the last tensor ends"));  // cut
  EXPECT_TRUE(has(refusal(two("[0,5]", "[5,9]"), 9), "tensor \"a\" has 5 bytes: expected 4"));
}

TEST(Safetensors, CountsWithoutOverflow) {
  const auto of = [](const std::string& shape, const std::string& offsets) {
    return fmt::format(R"({{"a":{{"dtype":"F64","shape":{},"data_offsets":{}}}}})", shape, offsets);
  };
  EXPECT_TRUE(has(refusal(of("[4294967296,4294967296]", "[0,0]")), "fewer than 2^63"));
  EXPECT_TRUE(has(refusal(of("[2305843009213693952]", "[0,0]")), "fewer than 2^63"));
  EXPECT_TRUE(has(refusal(of("[1]", "[18446744073709551608,0]")), "expected them to begin at 0"));
  EXPECT_TRUE(has(refusal(of("[1]", "[0,18446744073709551615]"), 8), "has 18446744073709551615 bytes"));
  EXPECT_TRUE(has(refusal(of("[18446744073709551615]", "[0,8]"), 8), "not of the form"));
  EXPECT_TRUE(has(refusal(of("[1]", "[0,18446744073709551616]"), 8), "not of the form"));
  for (const std::uint64_t length :
       {~std::uint64_t{0}, std::uint64_t{1} << 63, kLongestHeader + 1, std::uint64_t{3}}) {
    const std::string file = std::string(reinterpret_cast<const char*>(&length), 8) + "{}";
    EXPECT_TRUE(
        has(message_of<DataLoss>([&] { parse_safetensors("x", file, file.size()); }), "by its own account"));
  }
  EXPECT_TRUE(has(message_of<DataLoss>([&] { parse_safetensors("x", "1234", 4); }), "too few"));
}

TEST(Safetensors, RefusesNamesThatCouldBePaths) {
  for (const char* name : {"", "a/b", "a\\\\b", "a\\u0000b", "a\\nb", "a\\u001b[31m", "\\u202e"}) {
    EXPECT_TRUE(
        has(refusal(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}})", name)),
            "the tensor name"))
        << name;
  }
  EXPECT_TRUE(has(refusal(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}})",
                                      std::string(1025, 'a'))),
                  "more than 1024 bytes"));
  for (const char* name : {"a.b", "layer1.0.weight@replica3", "größe", "a b"}) {
    EXPECT_EQ(fault_of_tensor_name(name), "") << name;
  }
}

TEST(Safetensors, WritesNothingForTensorsThatItCannotHold) {
  const std::vector<std::byte> four(4);
  const auto wrong = [](std::vector<TensorBytes> tensors) {
    return message_of<InvalidArgument>([&] { lay_out_safetensors(tensors, {}); });
  };
  EXPECT_TRUE(has(wrong({{"a/b", "U8", {4}, four}}), "slash"));
  EXPECT_TRUE(has(wrong({{"__metadata__", "U8", {4}, four}}), "means metadata"));
  EXPECT_TRUE(has(wrong({{"a", "U8", {4}, four}, {"a", "U8", {4}, four}}), "given twice"));
  EXPECT_TRUE(has(wrong({{"a", "float", {1}, four}}), "expected none for dtype \"float\""));
  EXPECT_TRUE(has(wrong({{"a", "F32", {2}, four}}), "has 4 bytes: expected 8"));
  EXPECT_TRUE(has(wrong({{"a", "F32", {-1}, four}}), "shape [-1]"));
  EXPECT_TRUE(has(message_of<InvalidArgument>([&] { lay_out_safetensors({}, {{"a", "\xff"}}); }), "UTF-8"));
  std::vector<TensorBytes> many(17'000);
  for (std::size_t i = 0; i < many.size(); ++i)
    many[i] = {std::string(1000, 'a') + std::to_string(i), "U8", {0}, {}};
  EXPECT_TRUE(has(wrong(many), "write several files"));
}

TEST(Safetensors, RefusesPicklesAndArchivesWithTheReason) {
  const TempFolder folder;
  PosixFileSystem files;
  const auto reason = [&](const std::string& bytes) {
    std::ofstream(folder.file("model.pt"), std::ios::binary) << bytes;
    const std::string line =
        message_of<InvalidArgument>([&] { SafetensorsFile(files, folder.file("model.pt")); });
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_TRUE(has(line, "model.pt is a")) << line;
    EXPECT_TRUE(has(line, "safetensors.torch.save_file")) << line;
    return line;
  };
  EXPECT_TRUE(
      has(reason(std::string("PK\x03\x04\x00\x00\x08\x08", 8) + std::string(100, 'x')), "zip archive"));
  EXPECT_TRUE(has(reason("\x80\x02}q\x01X" + std::string(100, 'x')), "Python pickle"));
  EXPECT_TRUE(has(reason("\x80\x02."), "Python pickle"));
  EXPECT_TRUE(has(reason("\x80\x04\x95\x10" + std::string(100, 'x')), "runs whatever code"));
  EXPECT_TRUE(has(reason("\x89HDF\r\n\x1a\n" + std::string(100, 'x')), "HDF5"));
}

TEST(Safetensors, OpensOnlyRegularFiles) {
  const TempFolder folder;
  PosixFileSystem files;
  std::filesystem::copy(kOracle, folder.file("real"));
  std::filesystem::create_symlink(folder.file("real"), folder.file("link"));
  std::filesystem::create_directory(folder.file("folder"));
  ASSERT_EQ(mkfifo(folder.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsFile(files, folder.file("real")).tensors().size(), 3u);
  EXPECT_TRUE(
      has(message_of<FileError>([&] { SafetensorsFile(files, folder.file("link")); }), "link\": Too many"));
  EXPECT_TRUE(
      has(message_of<FileError>([&] { SafetensorsFile(files, folder.file("folder")); }), "directory"));
  EXPECT_TRUE(has(message_of<FileError>([&] { SafetensorsFile(files, folder.file("no")); }), "No such file"));
  EXPECT_TRUE(
      has(message_of<InvalidArgument>([&] { SafetensorsFile(files, folder.file("fifo")); }), "regular file"));
}

TEST(Safetensors, SaysThatAFileWasCutSinceItWasOpened) {
  const TempFolder folder;
  PosixFileSystem files;
  std::filesystem::copy(kOracle, folder.file("a"));
  const SafetensorsFile file(files, folder.file("a"));
  std::filesystem::resize_file(folder.file("a"), 290);
  EXPECT_TRUE(
      has(message_of<DataLoss>([&] { values<float>(file, "weight"); }), "ends in the middle of tensor"));
}

TEST(Safetensors, LeavesNothingBehindWhenItCannotWrite) {
  const TempFolder folder;
  PosixFileSystem files;
  std::filesystem::create_directories(folder / "taken" / "inside");
  EXPECT_THROW(write_safetensors(files, folder.file("taken"), {}), FileError);
  EXPECT_THROW(write_safetensors(files, folder.file("no/such"), {}), FileError);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace tandem::internal
