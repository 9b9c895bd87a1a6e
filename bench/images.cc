// What reading pictures costs on one core: JPEG files decoded and resized, records of a TFRecord file read
// with their checksums. Alone it prints its own figures; bench/images runs it as a worker, beside tf.data and
// Pillow.
//
//   bench_images --pictures DIR [--size 224] [--rounds 9] [--megabytes 128]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/tfrecord.h"
#include "data/image/jpeg.h"
#include "data/image/resize.h"
#include "turns.h"

namespace tandem::bench {
namespace {

using namespace internal;
namespace fs = std::filesystem;

constexpr std::size_t kSmallRecord = 1000;  // bytes

struct Flags {
  std::string pictures;
  std::string records;
  int size = 224;
  int rounds = 9;
  std::size_t megabytes = 128;
  bool worker = false;
  bool write_records = false;
};

std::string read_file(const std::string& path) {
  std::string bytes;
  const ByteSource source = file_source(path);
  bytes.resize(fs::file_size(path));
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t got = source(bytes.data() + done, bytes.size() - done);
    if (got == 0) throw std::runtime_error("\"" + path + "\" became shorter");
    done += got;
  }
  return bytes;
}

std::vector<std::string> picture_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".jpg") files.push_back(entry.path().string());
  }
  if (files.empty()) throw std::runtime_error("there is no .jpg file in \"" + folder + "\"");
  std::sort(files.begin(), files.end());
  return files;
}

std::string records_file(const Flags& flags, const char* kind) {
  return flags.records + "/" + kind + ".tfrecord";
}

// The pictures, over and over, as records; and the same bytes in small ones.
void write_records(const Flags& flags) {
  const std::vector<std::string> files = picture_files(flags.pictures);
  TfRecordWriter large(records_file(flags, "large"));
  TfRecordWriter small(records_file(flags, "small"));
  std::size_t bytes = 0;
  for (std::size_t i = 0; bytes < flags.megabytes * 1'000'000; ++i) {
    const std::string picture = read_file(files[i % files.size()]);
    large.append(picture);
    for (std::size_t at = 0; at < picture.size(); at += kSmallRecord) {
      small.append(std::string_view(picture).substr(at, kSmallRecord));
    }
    bytes += picture.size();
  }
  large.close();
  small.close();
}

// What is measured, by the name that bench/images knows it by, and how many pictures or bytes it is.
struct Job {
  std::string name;
  std::string title;
  double amount;
  std::function<void()> run;
};

std::vector<Job> jobs(const Flags& flags) {
  const std::vector<std::string> files = picture_files(flags.pictures);
  const auto decode = [files, size = flags.size](int min_size) {
    std::vector<float> values(std::size_t{3} * size * size);
    for (const auto& file : files) {
      const Picture picture =
          decode_jpeg(read_file(file), file, {.min_height = min_size, .min_width = min_size});
      resize(view_of(picture), {.height = size, .width = size}, values);
    }
  };
  const auto read_records = [](const std::string& path) {
    RecordReader reader = open_tfrecord(path);
    std::size_t bytes = 0;
    while (const auto record = reader.next_view()) bytes += record->size();
    if (bytes == 0) throw std::runtime_error("\"" + path + "\" is empty");
  };
  const auto pictures = static_cast<double>(files.size());
  std::vector<Job> all{{"scaled", "decoded at a size that is enough, resized", pictures,
                        [decode, size = flags.size] { decode(size); }},
                       {"full", "decoded at full size, resized", pictures, [decode] { decode(0); }}};
  for (const char* kind : {"large", "small"}) {
    const std::string path = records_file(flags, kind);
    all.push_back({kind, fmt::format("TFRecord, {} records", kind), static_cast<double>(fs::file_size(path)),
                   [=] { read_records(path); }});
  }
  return all;
}

// Says what it is, then answers each line, the name of a job, with the seconds that it took.
void serve(const std::vector<Job>& all) {
  for (const Job& job : all) job.run();
  fmt::print("this tree\n");
  std::fflush(stdout);
  for (std::string name; std::getline(std::cin, name);) {
    const auto job = std::find_if(all.begin(), all.end(), [&](const Job& each) { return each.name == name; });
    if (job == all.end()) throw std::runtime_error("there is no job \"" + name + "\"");
    fmt::print("{}\n", seconds_of(job->run));
    std::fflush(stdout);
  }
}

void measure(const std::vector<Job>& all, int rounds) {
  std::vector<std::function<double()>> variants;
  for (const Job& job : all) variants.push_back([&job] { return job.amount / seconds_of(job.run); });
  const Samples<double> rates = take_turns<double>(rounds, variants);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_bytes = all[i].name == "large" || all[i].name == "small";
    const Spread rate = spread(rates[i]);
    const double unit = is_bytes ? 1e9 : 1;
    fmt::print("{:<44} {:>8.2f} {} ({:.2f} to {:.2f})\n", all[i].title, rate.median / unit,
               is_bytes ? "GB/s" : "images/s", rate.low / unit, rate.high / unit);
  }
}

void run(Flags flags) {
  if (flags.write_records) return write_records(flags);
  if (flags.worker) return serve(jobs(flags));
  std::string folder = (fs::temp_directory_path() / "tandem-bench-XXXXXX").string();
  if (!mkdtemp(folder.data())) throw std::runtime_error("cannot make a folder for records");
  struct Remove {
    std::string path;
    ~Remove() { fs::remove_all(path); }
  } const remove{folder};
  flags.records = folder;
  write_records(flags);
  measure(jobs(flags), flags.rounds);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app("Measures decoding of pictures and reading of records, on one core", "bench_images");
  tandem::bench::Flags flags;
  app.add_option("--pictures", flags.pictures, "A folder with .jpg files in it or below")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--size", flags.size, "Height and width to resize to")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds, "Of each measurement")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--megabytes", flags.megabytes, "Of records")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--records", flags.records, "A folder for records, of bench/images")->group("");
  app.add_flag("--write_records", flags.write_records, "Only that")->group("");
  app.add_flag("--worker", flags.worker, "Answer bench/images")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    tandem::bench::run(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_images: {}\n", error.what());
    return 1;
  }
  return 0;
}
