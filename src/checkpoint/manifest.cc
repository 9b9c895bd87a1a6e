#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_set>

#include "base/crc32c.h"
#include "base/hmac.h"
#include "base/json_limits.h"
#include "cluster/text.h"

namespace tandem::internal {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "tandem-checkpoint-1";
constexpr int kDeepest = 64;
constexpr int kMostShards = 100'000;
constexpr std::int64_t kLargestStep = 999'999'999'999;
constexpr std::int64_t kLargestGeneration = 999'999;
constexpr std::string_view kTagDomain{"tandem checkpoint\0", 18};

// Throws std::runtime_error with the reason, for callers to say of what.
Json parse_json(std::string_view text) {
  try {
    JsonLimits<Json> limits(kDeepest);
    return Json::parse(
        text, [&](int depth, Json::parse_event_t event, Json& value) { return limits(depth, event, value); });
  } catch (const JsonTooDeep&) {
    throw std::runtime_error(fmt::format("nested more than {} deep", kDeepest));
  } catch (const JsonKeyTwice& twice) {
    throw std::runtime_error(fmt::format("the key {} is there twice", quote(twice.key)));
  } catch (const Json::parse_error& error) {
    throw std::runtime_error(fmt::format("not JSON at byte {}", error.byte));
  } catch (const Json::exception&) {
    throw std::runtime_error("a number is too large");
  }
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string sha256_of(std::string_view text) {
  Sha256 digest;
  digest.update(text.data(), text.size());
  return digest.hex();
}

// Reads the values of an object; what is missing or of another type is named.
class Fields {
 public:
  Fields(const Json& json, std::string name) : json_(json), name_(std::move(name)) {
    if (!json.is_object()) throw DataLoss(fmt::format("{} is not an object", name_));
  }

  const Json& operator[](const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) throw DataLoss(fmt::format("{} has no \"{}\"", name_, key));
    return *found;
  }
  // From 0 to most.
  std::int64_t number(const char* key, std::int64_t most = std::numeric_limits<std::int64_t>::max()) const {
    const Json& value = (*this)[key];
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
      throw wrong(key, fmt::format("a whole number from 0 to {}", most));
    }
    return value.get<std::int64_t>();
  }
  const std::string& text(const char* key) const {
    const Json& value = (*this)[key];
    if (!value.is_string()) throw wrong(key, "text");
    return value.get_ref<const std::string&>();
  }
  const Json& array(const char* key) const {
    const Json& value = (*this)[key];
    if (!value.is_array()) throw wrong(key, "an array");
    return value;
  }
  // Text of so many hexadecimal digits each.
  std::vector<std::string> digests(const char* key, std::size_t digits) const {
    std::vector<std::string> all;
    for (const Json& one : array(key)) {
      if (!one.is_string() || !is_hex(one.get_ref<const std::string&>(), digits)) {
        throw wrong(key, fmt::format("texts of {} hexadecimal digits", digits));
      }
      all.push_back(one.get<std::string>());
    }
    return all;
  }

 private:
  DataLoss wrong(const char* key, const std::string& expected) const {
    return DataLoss(fmt::format("\"{}\" of {} is not {}", key, name_, expected));
  }

  const Json& json_;
  std::string name_;
};

Json to_json(const TensorEntry& tensor) {
  return {{"name", tensor.name},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"begin", tensor.begin},
          {"end", tensor.end}};
}

TensorEntry tensor_of(const Json& json, const std::string& shard) {
  const Fields fields(json, fmt::format("a tensor of {}", shard));
  TensorEntry tensor{.name = fields.text("name"),
                     .dtype = fields.text("dtype"),
                     .begin = static_cast<std::uint64_t>(fields.number("begin")),
                     .end = static_cast<std::uint64_t>(fields.number("end"))};
  for (const Json& dimension : fields.array("shape")) {
    tensor.shape.push_back(dimension.is_number_unsigned() ? dimension.get<std::int64_t>() : -1);
  }
  return tensor;
}

// What is wrong with it; empty if nothing is.
std::string fault_of(const ShardSummary& shard) {
  if (shard.count < 1 || shard.count > kMostShards || shard.index < 0 || shard.index >= shard.count) {
    return fmt::format("there is no shard {} of {}", shard.index, shard.count);
  }
  if (!shard.error.empty()) return {};
  const std::uint64_t chunks = (shard.bytes + kChunkBytes - 1) / kChunkBytes;
  if (shard.bytes == 0 || shard.crc32c.size() != chunks ||
      (!shard.sha256.empty() && shard.sha256.size() != chunks)) {
    return fmt::format("{} has {} bytes and {} checksums", shard.name(), shard.bytes, shard.crc32c.size());
  }
  for (std::size_t i = 0; i < shard.tensors.size(); ++i) {
    const TensorEntry& tensor = shard.tensors[i];
    if (const std::string fault = fault_of_tensor_name(tensor.name); !fault.empty()) {
      return fmt::format("{}: the tensor name {} {}", shard.name(), quote(tensor.name), fault);
    }
    const bool follows =
        i == 0 ? tensor.begin <= kLongestHeader + 8 : tensor.begin == shard.tensors[i - 1].end;
    const bool ends = i + 1 < shard.tensors.size() || tensor.end == shard.bytes;
    if (!follows || !ends || tensor.end < tensor.begin ||
        tensor_bytes(tensor.dtype, tensor.shape) != tensor.bytes()) {
      return fmt::format("{}: the values of tensor {} do not fit", shard.name(), quote(tensor.name));
    }
  }
  return {};
}

Json to_json(const ShardSummary& shard) {
  Json json{{"index", shard.index}, {"count", shard.count}};
  if (!shard.error.empty()) {
    json["error"] = shard.error;
    return json;
  }
  json["file"] = shard.file();
  json["bytes"] = shard.bytes;
  json["crc32c"] = Json::array();
  for (const std::uint32_t crc : shard.crc32c) json["crc32c"].push_back(fmt::format("{:08x}", crc));
  if (!shard.sha256.empty()) json["sha256"] = shard.sha256;
  json["tensors"] = Json::array();
  for (const TensorEntry& tensor : shard.tensors) json["tensors"].push_back(to_json(tensor));
  return json;
}

ShardSummary shard_of(const Json& json) {
  const Fields fields(json, "a shard");
  ShardSummary shard{.index = static_cast<int>(fields.number("index", kMostShards)),
                     .count = static_cast<int>(fields.number("count", kMostShards))};
  if (json.contains("error")) {
    shard.error = fields.text("error");
    if (shard.error.empty()) throw DataLoss("a shard has an error without words");
  } else {
    shard.bytes = static_cast<std::uint64_t>(fields.number("bytes"));
    for (const std::string& digits : fields.digests("crc32c", 8)) {
      std::uint32_t crc = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), crc, 16);
      shard.crc32c.push_back(crc);
    }
    if (json.contains("sha256")) shard.sha256 = fields.digests("sha256", 64);
    for (const Json& tensor : fields.array("tensors"))
      shard.tensors.push_back(tensor_of(tensor, shard.name()));
  }
  if (const std::string fault = fault_of(shard); !fault.empty()) throw DataLoss(fault);
  return shard;
}

// What is wrong between shards that are right in themselves.
std::string fault_of(const std::vector<ShardSummary>& shards) {
  if (shards.empty()) return "there is no shard";
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ShardSummary& shard = shards[i];
    if (shard.index != static_cast<int>(i) || shard.count != static_cast<int>(shards.size())) {
      return fmt::format("{} is number {} of {} shards", shard.name(), i, shards.size());
    }
    if (!shard.error.empty()) return fmt::format("{} was not written: {}", shard.name(), shard.error);
    for (const TensorEntry& tensor : shard.tensors) {
      if (!names.insert(tensor.name).second)
        return fmt::format("tensor {} is there twice", quote(tensor.name));
    }
  }
  return {};
}

}  // namespace

std::string CheckpointId::folder() const {
  return fmt::format("step-{:012}.g{:06}", step, generation);
}

std::string CheckpointId::text() const {
  return fmt::format("step {} g{}", step, generation);
}

std::optional<CheckpointId> CheckpointId::parse(std::string_view folder) {
  // Where the digits are in a name that has the right length.
  constexpr std::size_t kStepBegin = 5, kStepEnd = 17, kGenerationBegin = 19, kEnd = 25;
  if (folder.size() != kEnd) return std::nullopt;
  CheckpointId id;
  std::from_chars(folder.data() + kStepBegin, folder.data() + kStepEnd, id.step);
  std::from_chars(folder.data() + kGenerationBegin, folder.data() + kEnd, id.generation);
  if (id.step < 0 || id.generation < 0 || id.folder() != folder) return std::nullopt;
  return id;
}

void check_id(const CheckpointId& id) {
  if (id.step < 0 || id.step > kLargestStep || id.generation < 0 || id.generation > kLargestGeneration) {
    throw InvalidArgument(
        fmt::format("a checkpoint cannot be of {}: expected a step from 0 to {} and a generation from 0 "
                    "to {}",
                    id.text(), kLargestStep, kLargestGeneration));
  }
}

std::string ShardSummary::name() const {
  return fmt::format("shard-{}-of-{}", index, count);
}

std::string ShardSummary::file() const {
  return name() + ".safetensors";
}

std::string ShardSummary::to_bytes() const {
  return to_json(*this).dump(-1, ' ', false, Json::error_handler_t::replace);
}

ShardSummary ShardSummary::from_bytes(std::string_view bytes) {
  Json json;
  try {
    json = parse_json(bytes);
  } catch (const std::runtime_error& error) {
    throw DataLoss(fmt::format("the summary of a shard: {}", error.what()));
  }
  return shard_of(json);
}

std::string make_manifest(const Manifest& manifest) {
  check_id(manifest.id);
  std::string fault = fault_of(manifest.shards);
  for (const ShardSummary& shard : manifest.shards) {
    if (fault.empty()) fault = fault_of(shard);
  }
  if (!fault.empty()) throw InvalidArgument(fmt::format("checkpoint {}: {}", manifest.id.text(), fault));
  Json json;
  try {
    json["meta"] = parse_json(manifest.meta);
    if (!json["meta"].is_object()) throw std::runtime_error("not an object");
  } catch (const std::runtime_error& error) {
    throw InvalidArgument(fmt::format("the meta of checkpoint {}: {}", manifest.id.text(), error.what()));
  }
  json["format"] = kFormat;
  json["step"] = manifest.id.step;
  json["generation"] = manifest.id.generation;
  json["saved_at"] = manifest.saved_at;
  json["chunk_bytes"] = kChunkBytes;
  json["shards"] = Json::array();
  for (const ShardSummary& shard : manifest.shards) json["shards"].push_back(to_json(shard));
  std::string text = json.dump() + "\n";
  if (text.size() > kLargestManifest) {
    throw InvalidArgument(fmt::format("the manifest of checkpoint {} has {} bytes: expected at most {}",
                                      manifest.id.text(), text.size(), kLargestManifest));
  }
  return text;
}

Manifest parse_manifest(std::string_view text) {
  try {
    const Json json = parse_json(text);
    const Fields fields(json, "the manifest");
    if (fields.text("format") != kFormat) {
      throw DataLoss(fmt::format("the format is {}: expected \"{}\"", quote(fields.text("format")), kFormat));
    }
    if (fields.number("chunk_bytes") != static_cast<std::int64_t>(kChunkBytes)) {
      throw DataLoss(fmt::format("chunk_bytes is not {}", kChunkBytes));
    }
    Manifest manifest{.id = {.step = fields.number("step", kLargestStep),
                             .generation = fields.number("generation", kLargestGeneration)},
                      .saved_at = fields.number("saved_at")};
    for (const Json& shard : fields.array("shards")) manifest.shards.push_back(shard_of(shard));
    if (const std::string fault = fault_of(manifest.shards); !fault.empty()) throw DataLoss(fault);
    if (!fields["meta"].is_object()) throw DataLoss("\"meta\" is not an object");
    manifest.meta = fields["meta"].dump();
    return manifest;
  } catch (const std::runtime_error& error) {  // also DataLoss from above
    throw DataLoss(fmt::format("manifest.json: {}", error.what()));
  }
}

std::string make_commit(std::string_view manifest, std::string_view key) {
  std::string text = fmt::format("sha256 {}\n", sha256_of(manifest));
  if (!key.empty()) {
    text += fmt::format("hmac-sha256 {}\n", hex(hmac_sha256(key, std::string(kTagDomain).append(manifest))));
  }
  return text;
}

void check_commit(std::string_view commit, std::string_view manifest, std::string_view key) {
  constexpr std::string_view kDigest = "sha256 ", kTag = "hmac-sha256 ";
  // One line, and perhaps another.
  const std::size_t first_end = std::min(commit.find('\n'), commit.size());
  std::string_view digest = commit.substr(0, first_end);
  std::string_view tag = commit.substr(std::min(first_end + 1, commit.size()));
  const bool has_tag = !tag.empty();
  if (tag.ends_with('\n')) tag.remove_suffix(1);
  const bool well_formed = commit.ends_with('\n') && digest.starts_with(kDigest) &&
                           is_hex(digest.substr(kDigest.size()), 64) &&
                           (!has_tag || (tag.starts_with(kTag) && is_hex(tag.substr(kTag.size()), 64)));
  if (!well_formed) throw DataLoss("COMMIT is not a line \"sha256 <64 hexadecimal digits>\"");
  const std::string actual = sha256_of(manifest);
  if (digest.substr(kDigest.size()) != actual) {
    throw DataLoss(
        fmt::format("manifest.json, sha256 {} expected {}", actual, digest.substr(kDigest.size())));
  }
  if (key.empty()) return;
  if (!has_tag) throw DataLoss("COMMIT has no hmac-sha256: it was not saved with this key");
  const std::string expected = hex(hmac_sha256(key, std::string(kTagDomain).append(manifest)));
  const std::string given(tag.substr(kTag.size()));
  const auto bytes_of = [](const std::string& text) {
    return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  if (!equal_in_constant_time(bytes_of(given), bytes_of(expected))) {
    throw DataLoss("the hmac-sha256 of COMMIT is not of this key");
  }
}

void ChunkChecksums::update(Bytes bytes) {
  while (!bytes.empty()) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), kChunkBytes - in_chunk_));
    crc_ = tandem::internal::crc32c(bytes.data(), n, crc_);
    if (with_sha256_) {
      if (!sha256_) sha256_.emplace();
      sha256_->update(bytes.data(), n);
    }
    in_chunk_ += n;
    if (in_chunk_ == kChunkBytes) end_chunk();
    bytes = bytes.subspan(n);
  }
}

void ChunkChecksums::end_chunk() {
  crcs_.push_back(crc_);
  if (with_sha256_) digests_.push_back(sha256_->hex());
  in_chunk_ = 0;
  crc_ = 0;
  sha256_.reset();
}

void ChunkChecksums::finish_into(ShardSummary& summary) {
  if (in_chunk_ > 0) end_chunk();
  summary.crc32c = std::move(crcs_);
  summary.sha256 = std::move(digests_);
}

}  // namespace tandem::internal
