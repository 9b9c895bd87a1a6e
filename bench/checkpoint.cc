// What a checkpoint costs beside a plain file of the same bytes on the same disk: saving beside write + sync,
// reading (with every checksum) beside read.
//
//   bench/checkpoint [--megabytes 256] [--rounds 7] [--folder DIR]        (builds first)
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "checkpoint/checkpoint_store.h"
#include "disk_bench.h"
#include "turns.h"

namespace tandem::bench {
namespace {

using namespace internal;

constexpr std::size_t kBlock = std::size_t{1} << 20;

// Tensors as a convolutional network has them: few large ones, and two small ones beside each.
struct Tensors {
  explicit Tensors(std::size_t bytes) : memory(bytes / 4, 1.0f) {
    const std::size_t large = 3 * 3 * 512 * 512;
    for (std::size_t at = 0; at < memory.size();) {
      for (const std::size_t size : {large, std::size_t{512}, std::size_t{512}}) {
        const std::size_t n = std::min(size, memory.size() - at);
        if (n == 0) break;
        const std::string name = fmt::format("tensor{}", bytes_of.size());
        bytes_of.push_back(
            {name, "F32", {static_cast<std::int64_t>(n)}, std::as_bytes(std::span(memory).subspan(at, n))});
        requests.push_back({name, std::as_writable_bytes(std::span(memory).subspan(at, n))});
        at += n;
      }
    }
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 1000);
  }

  std::span<std::byte> all() { return std::as_writable_bytes(std::span(memory)); }

  std::vector<float> memory;
  std::vector<TensorBytes> bytes_of;
  std::vector<TensorRequest> requests;
};

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// Beside, synced, renamed, the folder synced: what a careful program does with one file.
void plain_write(const std::string& path, std::span<const std::byte> bytes) {
  const std::string beside = path + ".tmp";
  {
    const FileDescriptor file(open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    check(bool(file), "open");
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n = write(file.get(), bytes.data() + done, std::min(kBlock, bytes.size() - done));
      check(n > 0, "write");
      done += static_cast<std::size_t>(n);
    }
    check(fsync(file.get()) == 0, "fsync");
  }
  check(std::rename(beside.c_str(), path.c_str()) == 0, "rename");
  const FileDescriptor folder(
      open(std::filesystem::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY));
  check(fsync(folder.get()) == 0, "fsync");
}

void plain_read(const std::string& path, std::span<std::byte> bytes) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check(bool(file), "open");
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = read(file.get(), bytes.data() + done, std::min(kBlock, bytes.size() - done));
    check(n > 0, "read");
    done += static_cast<std::size_t>(n);
  }
}

void forget(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void report(const std::string& what, double megabytes, const Samples<double>& samples) {
  const Spread part = ratio(samples[0], samples[1]);  // seconds: plain over ours
  fmt::print("{:<28} {:>8.0f} MB/s plain {:>8.0f} MB/s checkpoint {:>5.0f} % ({:.0f}-{:.0f})\n", what,
             megabytes / median(samples[0]), megabytes / median(samples[1]), 100 * part.median,
             100 * part.low, 100 * part.high);
  std::fflush(stdout);
}

void measure(const DiskBench& bench) {
  const auto& [megabytes, rounds, folder] = bench;
  Tensors tensors(megabytes * 1'000'000);
  CheckpointStore store(folder + "/run", {.keep = 1});
  const std::string plain = folder + "/plain";
  const std::string shard = folder + "/run/step-000000000001.g000001/shard-0-of-1.safetensors";
  const auto mb = static_cast<double>(megabytes);
  report("write and sync", mb,
         take_turns<double>(rounds, {[&] {
                                       std::filesystem::remove(plain);
                                       return seconds_of([&] { plain_write(plain, tensors.all()); });
                                     },
                                     [&] {
                                       std::filesystem::remove_all(folder + "/run/step-000000000001.g000001");
                                       return seconds_of([&] {
                                         const SaveResult result = store.save({1, 1}, tensors.bytes_of, "{}");
                                         if (!result.ok()) throw std::runtime_error(result.error);
                                       });
                                     }}));
  const auto load = [&] { store.open({1, 1}).read(tensors.requests); };
  report("read, from memory", mb,
         take_turns<double>(rounds, {[&] { return seconds_of([&] { plain_read(plain, tensors.all()); }); },
                                     [&] { return seconds_of(load); }}));
  report("read, from the disk", mb,
         take_turns<double>(rounds, {[&] {
                                       forget(plain);
                                       return seconds_of([&] { plain_read(plain, tensors.all()); });
                                     },
                                     [&] {
                                       forget(shard);
                                       return seconds_of(load);
                                     }}));
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  return tandem::bench::run_disk_bench(argc, argv, "bench_checkpoint",
                                       "Measures checkpoints beside plain files", tandem::bench::measure);
}
