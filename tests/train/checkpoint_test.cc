#include "tandem/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "strategy/tasks_in_one_process.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temp_folder.h"
#include "support/training.h"
#include "tandem/tandem.h"
#include "train/optimizer_binding.h"
#include "train/preemption.h"

namespace tandem {
namespace {

using testing_support::FileSizeLimit;
using testing_support::message_of;
using testing_support::mirrored;
using testing_support::TempFolder;
namespace fs = std::filesystem;

// With what makes a resume hard: batch norm, whose statistics are each replica's own, and dropout.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(6, 16));
    bn = register_module("bn", torch::nn::BatchNorm1d(16));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    fc2 = register_module("fc2", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(dropout(torch::relu(bn(fc1(x))))); }

  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::BatchNorm1d bn{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Net);

Dataset data() {
  torch::manual_seed(2);
  return Dataset::from_tensors(torch::randn({90, 6}), torch::randint(4, {90})).shuffle(90).batch(12);
}

Optimizer adam() {
  return optimizers::Adam({.learning_rate = 0.01});
}

Model make(const Strategy& strategy, const Optimizer& optimizer = adam(), std::uint64_t seed = 1) {
  return strategy.scope([&] {
    Model m([] { return Net(); }, {.seed = seed});
    m.compile({.optimizer = optimizer,
               .loss = losses::sparse_categorical_crossentropy(),
               .metrics = {metrics::sparse_categorical_accuracy("accuracy")}});
    return m;
  });
}

// Ends a fit() as a kill would: nothing after the step is done.
struct Killed : std::exception {};
struct Killer : Callback {
  explicit Killer(std::int64_t at) : at(at) {}
  void on_resumable(const ResumePoint& point) override {
    if (point.global_step >= at) throw Killed();
  }
  std::int64_t at;
};

FitOptions silent(std::int64_t epochs, std::vector<std::shared_ptr<Callback>> callbacks) {
  return {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent};
}

std::shared_ptr<Callback> backup(const TempFolder& folder, std::optional<std::int64_t> steps = {}) {
  return BackupAndRestore(
      {.backup_dir = folder.path() + "/ck", .save_freq = steps, .delete_checkpoint = false});
}

class Resume : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, Resume, testing::Values(1, 2, 3));

// 8 steps an epoch; killed at every step of three epochs, once each.
TEST_P(Resume, AfterEveryStepEndsWithTheSameBits) {
  const MirroredStrategy strategy = mirrored(GetParam());
  Model undisturbed = make(strategy);
  const History whole = undisturbed.fit(data(), silent(3, {}));
  const TempFolder folder;
  std::int64_t kills = 0;
  for (std::int64_t at = 1;; ++at) {
    // The seed is another one each time: that of the first holds.
    Model model = make(strategy, adam(), static_cast<std::uint64_t>(at));
    try {
      const History history = model.fit(data(), silent(3, {backup(folder, 1), std::make_shared<Killer>(at)}));
      EXPECT_EQ(model.parameter_digest(), undisturbed.parameter_digest());
      EXPECT_EQ(history.history, whole.history);
      EXPECT_EQ(history.epoch, whole.epoch);
      EXPECT_EQ(history.steps, whole.steps);
      break;
    } catch (const Killed&) {
      ++kills;
    }
    ASSERT_LT(kills, 100);
  }
  EXPECT_EQ(kills, 24);
}

TEST(BackupAndRestore, GoesOnFromTheLastEpochByDefault) {
  const MirroredStrategy strategy = mirrored(2);
  Model undisturbed = make(strategy);
  undisturbed.fit(data(), silent(3, {}));
  const TempFolder folder;
  EXPECT_THROW(make(strategy).fit(data(), silent(3, {backup(folder), std::make_shared<Killer>(13)})), Killed);
  Model model = make(strategy);
  const History history = model.fit(data(), silent(3, {backup(folder)}));
  EXPECT_EQ(model.parameter_digest(), undisturbed.parameter_digest());
  EXPECT_EQ(history.epoch, (std::vector<std::int64_t>{0, 1, 2}));
  // Once more: there is nothing left to do.
  Model again = make(strategy);
  EXPECT_EQ(again.fit(data(), silent(3, {backup(folder)})).steps, 24);
  EXPECT_EQ(again.parameter_digest(), undisturbed.parameter_digest());
}

TEST(BackupAndRestore, GoesOnWithinDataThatOutlastsAnEpoch) {
  const MirroredStrategy strategy = mirrored(2);
  const auto options = [](std::vector<std::shared_ptr<Callback>> callbacks) {
    FitOptions options = silent(4, std::move(callbacks));
    options.steps_per_epoch = 5;
    return options;
  };
  Model undisturbed = make(strategy);
  undisturbed.fit(data().repeat(), options({}));
  for (const std::int64_t at : {4, 5, 9}) {
    const TempFolder folder;
    EXPECT_THROW(
        make(strategy).fit(data().repeat(), options({backup(folder, 1), std::make_shared<Killer>(at)})),
        Killed);
    Model model = make(strategy);
    model.fit(data().repeat(), options({backup(folder, 1)}));
    EXPECT_EQ(model.parameter_digest(), undisturbed.parameter_digest()) << at;
  }
}

TEST(BackupAndRestore, TrainsOnWhenMoreStepsAreWanted) {
  const MirroredStrategy strategy = mirrored(2);
  const auto options = [](std::int64_t steps, std::vector<std::shared_ptr<Callback>> callbacks) {
    FitOptions options = silent(9, std::move(callbacks));
    options.max_steps = steps;
    return options;
  };
  Model undisturbed = make(strategy);
  undisturbed.fit(data(), options(13, {}));
  const TempFolder folder;
  Model first = make(strategy);
  first.fit(data(), options(5, {backup(folder, 100)}));
  EXPECT_EQ(first.global_step(), 5);
  Model model = make(strategy);
  model.fit(data(), options(13, {backup(folder, 100)}));
  EXPECT_EQ(model.parameter_digest(), undisturbed.parameter_digest());
}

TEST(BackupAndRestore, LeavesNothingBehindWhenItIsDone) {
  const TempFolder folder;
  make(mirrored(1)).fit(data(), silent(2, {BackupAndRestore({.backup_dir = folder.path() + "/ck"})}));
  EXPECT_TRUE(fs::is_empty(folder.path() + "/ck"));
}

TEST(BackupAndRestore, SavesAndStopsWhenToldToGo) {
  const MirroredStrategy strategy = mirrored(2);
  Model undisturbed = make(strategy);
  undisturbed.fit(data(), silent(3, {}));
  struct Terminator : Callback {
    void on_train_batch_end(const TrainStep& step, const Logs&) override {
      if (step.global_step == 11) raise(SIGTERM);
    }
  };
  const TempFolder folder;
  Model told = make(strategy);
  EXPECT_THROW(told.fit(data(), silent(3, {backup(folder, 100), std::make_shared<Terminator>()})), Preempted);
  EXPECT_EQ(told.global_step(), 11);
  EXPECT_FALSE(internal::preemption_requested());
  Model model = make(strategy);
  model.fit(data(), silent(3, {backup(folder, 100)}));
  EXPECT_EQ(model.parameter_digest(), undisturbed.parameter_digest());
}

// Saved under one strategy, restored under another: what a user reads is the same, and so is the optimizer.
TEST(CheckpointManager, RestoresUnderAnotherStrategy) {
  std::vector<Strategy> strategies{mirrored(1), mirrored(2), mirrored(4),
                                   CentralStorageStrategy({.compute_devices = {"/cpu:0", "/cpu:1"}}),
                                   OneDeviceStrategy("/cpu:0")};
  for (const Strategy& from : strategies) {
    const TempFolder folder;
    Model saved = make(from);
    saved.fit(data(), silent(1, {}));
    EXPECT_FALSE(CheckpointManager(saved, folder.path()).save().empty());
    for (const Strategy& to : strategies) {
      Model model = make(to, adam(), 77);
      const auto restored = CheckpointManager(model, folder.path()).restore();
      ASSERT_TRUE(restored);
      EXPECT_EQ(restored->global_step, 8);
      EXPECT_EQ(model.seed(), 1u);
      EXPECT_EQ(model.parameter_digest(), saved.parameter_digest()) << from.name() << " to " << to.name();
      const auto state = [](const Model& m) { return m.optimizer().binding().updater->state(); };
      const auto before = state(saved);
      const auto after = state(model);
      ASSERT_EQ(before.size(), after.size());
      for (const auto& [name, slots] : before) {
        for (const auto& [slot, tensor] : slots)
          EXPECT_TRUE(tensor.equal(after.at(name).at(slot))) << name << slot;
      }
    }
  }
}

TEST(CheckpointManager, KeepsTheNewestAndThePlaceInTheData) {
  const MirroredStrategy strategy = mirrored(2);
  const TempFolder folder;
  Model model = make(strategy);
  DistributedDataset batches = strategy.distribute(data(), {.seed = 5});
  CheckpointManager manager(model, folder.path(), {.max_to_keep = 2});
  manager.track("mine", batches);
  for (int i = 0; i < 5; ++i) {
    model.train_step(batches.next());
    manager.save_async();
  }
  manager.wait();
  const auto kept = manager.checkpoints();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_TRUE(kept[1].ends_with("step-000000000005.g000001")) << kept[1];
  EXPECT_EQ(latest_checkpoint(folder.path()), kept[1]);
  const DistributedBatch next = batches.next();

  Model again = make(strategy);
  DistributedDataset others = strategy.distribute(data(), {.seed = 5});
  CheckpointManager reader(again, folder.path());
  reader.track("mine", others);
  ASSERT_TRUE(reader.restore());
  EXPECT_TRUE(others.next()[0].x.tensor().equal(next[0].x.tensor()));
}

TEST(CheckpointManager, PassesOverADamagedOne) {
  const TempFolder folder;
  Model model = make(mirrored(1));
  CheckpointManager manager(model, folder.path());
  const DistributedBatch batch = model.strategy().distribute(data()).next();
  model.train_step(batch);
  manager.save();
  const std::string digest = model.parameter_digest();
  model.train_step(batch);
  const std::string newest = manager.save();
  {
    std::fstream file(newest + "/shard-0-of-2.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('!');
  }
  EXPECT_EQ(manager.restore()->global_step, 1);
  EXPECT_EQ(model.parameter_digest(), digest);
  for (const auto& file : fs::directory_iterator(manager.checkpoints()[0])) fs::resize_file(file.path(), 5);
  EXPECT_THROW(manager.restore(), NoUsableCheckpoint);
  EXPECT_EQ(model.parameter_digest(), digest);
}

TEST(CheckpointManager, RefusesWhatIsOfAnotherModelOrOptimizer) {
  const TempFolder folder;
  Model model = make(mirrored(1));
  model.fit(data(), silent(1, {}));
  CheckpointManager(model, folder.path()).save();

  Model other([] { return torch::nn::Linear(3, 2); });
  EXPECT_EQ(message_of<InvalidArgument>([&] { CheckpointManager(other, folder.path()).restore(); }),
            "checkpoint " + folder.file("step-000000000008.g000001") +
                " is of another model: it has no \"bias\"; use the folder of this model, or an "
                "empty one");
  Model sgd = make(mirrored(1), optimizers::SGD({.learning_rate = 0.1}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { CheckpointManager(sgd, folder.path()).restore(); }),
            "checkpoint " + folder.file("step-000000000008.g000001") +
                " was saved with the optimizer Adam, and this model is compiled with SGD: use "
                "the same one, or load the weights alone (Model::load_weights)");
}

TEST(CheckpointManager, GoesOnTrainingWhenTheDiskDoesNotTakeIt) {
  const TempFolder folder;
  Model model = make(mirrored(2));
  CheckpointManager required(model, folder.path(), {.stop_after_failures = 2});
  EXPECT_NE(required.save(), "");
  {
    const FileSizeLimit full(2000);
    model.fit(data(),
              silent(1, {BackupAndRestore(
                            {.backup_dir = folder.path(), .save_freq = 1, .delete_checkpoint = false})}));
    EXPECT_EQ(model.global_step(), 8);
    EXPECT_EQ(required.save(), "");
    EXPECT_EQ(required.save(), "");
    EXPECT_THROW(required.save(), DataLoss);
  }
  EXPECT_EQ(CheckpointManager(model, folder.path()).restore()->global_step, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()),
            2);  // and "latest"
}

TEST(CheckpointManager, OfOneTaskAloneIsAnErrorForAll) {
  const TempFolder folder;
  std::vector<std::string> errors(2);
  testing_support::run_tasks(2, 1, {}, [&](Strategy& strategy, int rank) {
    errors[static_cast<std::size_t>(rank)] = message_of<Error>([&] {
      Model model = make(strategy);
      DistributedDataset batches = strategy.distribute(data());
      if (rank == 0) CheckpointManager(model, folder.path()).save();
      while (true) model.train_step(batches.next());
    });
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("worker:"), std::string::npos) << error;
    EXPECT_NE(error.find("buffers"), std::string::npos) << error;  // what it does, and the other does not
  }
}

TEST(ModelFile, HoldsTheOptimizerToo) {
  const TempFolder folder;
  const std::string path = folder.path() + "/model.safetensors";
  Model model = make(mirrored(2));
  model.fit(data(), silent(1, {}));
  model.save(path);
  Model other = make(mirrored(1), adam(), 9);
  other.load(path);
  EXPECT_EQ(other.parameter_digest(), model.parameter_digest());
  EXPECT_EQ(other.global_step(), 8);
  EXPECT_THROW(other.load(folder.path() + "/none"), Error);
}

TEST(ModelCheckpoint, WritesTheBestUnderItsName) {
  const TempFolder folder;
  Model model = make(mirrored(2));
  const History history = model.fit(
      data(),
      silent(4, {ModelCheckpoint({.filepath = folder.path() + "/sub/all.{epoch:02d}-{loss:.3f}",
                                  .save_weights_only = true}),
                 ModelCheckpoint(
                     {.filepath = folder.path() + "/best", .monitor = "loss", .save_best_only = true})}));
  EXPECT_TRUE(fs::exists(fmt::format("{}/sub/all.02-{:.3f}", folder.path(), history.history.at("loss")[1])));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() + "/sub"), fs::directory_iterator()), 4);
  EXPECT_TRUE(fs::exists(folder.path() + "/best"));
}

}  // namespace
}  // namespace tandem
