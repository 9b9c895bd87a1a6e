// Trains MobileNetV2 to tell pictures apart, a folder for each class, under the strategy that a flag names.
//
//   cats_vs_dogs --data_dir PETS                     PETS/cats/*.jpg, PETS/dogs/*.jpg: a fifth is set aside
//   cats_vs_dogs --data_dir PETS                     or PETS/train/cats, ... and PETS/test/cats, ...
//   cats_vs_dogs --image_size 64 --width 0.35        drawn pictures, and a network for a small machine
//   cats_vs_dogs --data_dir PETS --weights FILE      from torchvision's weights, saved as safetensors
//
// On several machines as resnet_cifar_main. Ends with a line such as
//
//   mobilenet_v2, mirrored, 2 replicas: 21 images/s, loss 0.5211, test accuracy 0.8125
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "cli/program.h"
#include "support/generated_pets.h"
#include "support/program.h"
#include "support/run_figures.h"
#include "support/temporary_folder.h"
#include "tandem/tandem.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem::examples;
using tandem::data::ImageFolder;
using tandem::data::Split;

struct Flags : TrainingFlags {
  int image_size = 224;
  double width = 1.0;
  double learning_rate = 0.001;
  int decode_threads = 2;
  bool stop_at_broken = false;
  std::string weights = {};
};

// Training and test pictures: two folders, or parts of one.
struct Pets {
  ImageFolder train;
  ImageFolder test;
  Split test_split;
};

Pets find_pets(const std::string& dir, const Flags& flags) {
  const auto broken =
      flags.stop_at_broken ? tandem::data::BrokenPicture::kStop : tandem::data::BrokenPicture::kSkip;
  if (fs::is_directory(fs::path(dir) / "train") && fs::is_directory(fs::path(dir) / "test")) {
    return {ImageFolder(dir + "/train", {.broken = broken}), ImageFolder(dir + "/test", {.broken = broken}),
            Split::kTrain};
  }
  const ImageFolder all(dir, {.broken = broken, .test_part = 0.2});
  return {all, all, Split::kTest};
}

// Those that this task met: the log has named each of them.
void tell_skipped(const Pets& pets) {
  std::set<std::string> skipped;  // both folders may be one
  for (const ImageFolder* folder : {&pets.train, &pets.test}) {
    for (const std::string& file : folder->skipped()) skipped.insert(file);
  }
  if (!skipped.empty()) fmt::print("broken pictures that were skipped: {}\n", skipped.size());
}

tandem::Model make_model(const tandem::Strategy& strategy, const Flags& flags, std::int64_t classes) {
  return strategy.scope([&] {
    tandem::Model m(
        [&] {
          return tandem::models::MobileNetV2(
              tandem::models::MobileNetV2Options{.classes = classes, .width = flags.width});
        },
        {.seed = flags.seed, .policy = flags.policy()});
    // For other classes than the file's the last layer begins anew.
    if (!flags.weights.empty()) {
      m.load_weights(flags.weights, {.expect_partial = true, .skip_mismatch = true});
    }
    m.compile({.optimizer = tandem::optimizers::Adam({.learning_rate = flags.learning_rate}),
               .loss = tandem::losses::sparse_categorical_crossentropy(),
               .metrics = {tandem::metrics::sparse_categorical_accuracy("accuracy")}});
    return m;
  });
}

void train(const Flags& flags) {
  flags.check();
  if (flags.is_evaluator()) return;
  const std::map<std::string, std::string> program{{"model", fmt::format("mobilenet_v2-{}", flags.width)},
                                                   {"image_size", std::to_string(flags.image_size)}};
  if (flags.has_served(program)) return;
  const tandem::Strategy strategy = flags.strategy(program);
  const TemporaryFolder drawn("cats_vs_dogs");
  if (flags.data_dir.empty()) write_generated_pets(drawn.path());
  const Pets pets = find_pets(flags.data_dir.empty() ? drawn.path() : flags.data_dir, flags);

  tandem::data::ImageOptions pictures{.height = flags.image_size, .width = flags.image_size};
  const auto test_data = pets.test.files(pets.test_split)
                             .map(pets.test.decode(pictures), {.parallelism = flags.decode_threads})
                             .batch(flags.batch_size);
  pictures.random_flip = true;
  pictures.min_crop_area = 0.5;
  // Numbers are shuffled, not pictures: all of them costs nothing.
  const auto train_data = pets.train.files()
                              .shuffle(pets.train.size())
                              .map(pets.train.decode(pictures), {.parallelism = flags.decode_threads})
                              .batch(flags.batch_size, {.drop_remainder = true})
                              .prefetch(2);

  tandem::Model model = make_model(strategy, flags, std::ssize(pets.train.classes()));
  const auto figures = std::make_shared<RunFigures>();
  auto callbacks = flags.callbacks();
  callbacks.push_back(figures);
  tandem::FitOptions options{
      .epochs = flags.epochs(10, train_data.cardinality()),
      .max_steps = flags.train_steps,
      .callbacks = callbacks,
      .verbose = flags.verbosity(),
      .on_nan = flags.on_nan == "stop" ? tandem::OnNan::kStop : tandem::OnNan::kContinue};
  if (!flags.skip_eval) options.validation_data = test_data;
  model.fit(train_data, options);

  std::optional<double> accuracy;
  if (!flags.skip_eval && flags.sums_up(strategy)) accuracy = model.evaluate(test_data).at("accuracy");
  tell_skipped(pets);
  if (!flags.sums_up(strategy)) return;
  if (strategy.is_chief()) {
    fmt::print("mobilenet_v2, {}, {} replicas: {:.0f} images/s, loss {:.4f}{}\n", strategy.name(),
               strategy.num_replicas_in_sync(), figures->images_per_second(), figures->loss(),
               accuracy ? fmt::format(", test accuracy {:.4f}", *accuracy) : "");
  }
  if (!flags.metrics_json.empty()) figures->write_json(flags.metrics_json, model, accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains MobileNetV2 on pictures of cats and dogs, or of other classes", "cats_vs_dogs");
  Flags flags;
  flags.batch_size = 32;
  flags.add_to(app);
  app.add_option("--image_size", flags.image_size, "Height and width of the pictures")
      ->capture_default_str()
      ->check(CLI::Range(32, 1024));
  app.add_option("--width", flags.width, "Of the network: times its channels")->capture_default_str();
  app.add_option("--learning_rate", flags.learning_rate, "Adam's")->capture_default_str();
  app.add_option("--decode_threads", flags.decode_threads,
                 "Threads that read pictures (0: none of their own)")
      ->capture_default_str()
      ->check(CLI::Range(0, 256));
  app.add_flag("--stop_at_broken", flags.stop_at_broken, "Stop at a picture that cannot be decoded");
  app.add_option("--weights", flags.weights, "A safetensors file with torchvision's names to start from");
  return tandem::internal::run_program(app, argc, argv, [&] { return flags.run([&] { train(flags); }); });
}
