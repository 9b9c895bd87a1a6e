#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "summary/png.h"
#include "support/cluster_of_processes.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::ClusterOfProcesses;
using testing_support::ProcessResult;
using testing_support::run_process;
using testing_support::TempFolder;

ProcessResult run(const std::string& program, std::vector<std::string> flags) {
  flags.insert(flags.begin(), std::string(TANDEM_BIN) + "/" + program);
  return run_process(flags, 120);
}

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// One line that begins with the program's name, exit code 2, nothing else.
void expect_refusal(const std::string& program, const std::vector<std::string>& flags,
                    const std::string& part) {
  const ProcessResult result = run(program, flags);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.err.find(program + ": "), 0u) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

void put_u32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
}

// Four idx files whose pictures tell their class by which part is bright.
void write_mnist(const TempFolder& folder, int train, int test) {
  std::mt19937 random(1);
  for (const auto& [prefix, count] : {std::pair{"train", train}, {"t10k", test}}) {
    std::string images;
    put_u32(images, 2051);
    put_u32(images, static_cast<std::uint32_t>(count));
    put_u32(images, 28);
    put_u32(images, 28);
    std::string labels;
    put_u32(labels, 2049);
    put_u32(labels, static_cast<std::uint32_t>(count));
    for (int i = 0; i < count; ++i) {
      const int label = static_cast<int>(random() % 10);
      labels += static_cast<char>(label);
      for (int pixel = 0; pixel < 28 * 28; ++pixel) {
        const bool bright = pixel / 78 == label;
        images += static_cast<char>((bright ? 160 : 0) + random() % 64);
      }
    }
    std::ofstream(folder.file(std::string(prefix) + "-images-idx3-ubyte"), std::ios::binary) << images;
    std::ofstream(folder.file(std::string(prefix) + "-labels-idx1-ubyte"), std::ios::binary) << labels;
  }
}

TEST(Programs, RefuseWrongFlagsWithOneLine) {
  expect_refusal("resnet_cifar_main", {"--no_such_flag"}, "no_such_flag");
  expect_refusal("resnet_cifar_main", {"--train_steps", "many"}, "train_steps");
  expect_refusal("resnet_cifar_main", {"--train_epochs", "0"}, "--train_epochs is 0: expected 1 or more");
  expect_refusal("resnet_cifar_main", {"--train_steps", "-3"}, "--train_steps is -3");
  expect_refusal("resnet_cifar_main", {"--batch_size", "0"}, "--batch_size is 0");
  expect_refusal("resnet_cifar_main", {"--distribution_strategy", "mirored"},
                 "expected one of off, one_device, mirrored, central_storage");
  expect_refusal("resnet_cifar_main", {"--distribution_strategy", "tpu"}, "TPUStrategy is not built");
  expect_refusal("resnet_cifar_main", {"--distribution_strategy", "parameter_server"},
                 "needs a cluster with ps tasks");
  expect_refusal("resnet_cifar_main", {"--ps_max_staleness", "some"},
                 "expected none, or a number of steps from 0");
  expect_refusal("resnet_cifar_main", {"--all_reduce_alg", "tree"},
                 "--all_reduce_alg is \"tree\": expected one of");
  expect_refusal("resnet_cifar_main", {"--wire_format", "int8"},
                 "--wire_format is \"int8\": expected one of");
  expect_refusal("resnet_cifar_main", {"--data_port", "70000"}, "--data_port is 70000: expected 0 to 65535");
  expect_refusal("resnet_cifar_main", {"--num_gpus", "8"}, "use num_cpus 8");
  expect_refusal("resnet_cifar_main", {"--threads_per_replica", "-1"}, "threads_per_replica is -1");
  expect_refusal("mnist", {"--on_nan", "maybe"}, "expected stop or continue");
  expect_refusal("mnist", {"--loop", "endless"}, "--loop is \"endless\": expected fit or custom");
  expect_refusal("mnist", {"--loop", "custom", "--model_dir", "run"}, "--loop custom saves nothing");
  expect_refusal("mnist", {"--dtype", "fp8"}, "--dtype is \"fp8\": expected one of bf16, fp16, fp32");
  expect_refusal("cats_vs_dogs", {"--image_size", "8"}, "image_size");
  expect_refusal("mnist", {"--verbose", "3"}, "--verbose is \"3\": expected one of 0, 1, 2, auto");
}

TEST(Programs, RefuseWrongInputAfterNamingTheStrategy) {
  // These are found once the strategy has been announced; the last line is the refusal.
  const auto last_line = [](const std::string& program, const std::vector<std::string>& flags) {
    const ProcessResult result = run(program, flags);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err.substr(result.err.rfind(program + ": "));
  };
  EXPECT_NE(last_line("resnet_cifar_main", {"--data_dir", "/nonexistent"}).find("/nonexistent"),
            std::string::npos);
  EXPECT_NE(last_line("resnet_cifar_main", {"--resnet_size", "21"}).find("size 21 does not exist"),
            std::string::npos);
  EXPECT_NE(last_line("resnet_cifar_main", {"--num_cpus", "4", "--batch_size", "3"})
                .find("global batch of 3 is smaller than the 4 replicas"),
            std::string::npos);
  EXPECT_NE(last_line("mnist", {"--learning_rate", "-1"}).find("learning_rate is -1"), std::string::npos);
  EXPECT_NE(last_line("mnist", {"--data_dir", "/nonexistent"}).find("/nonexistent"), std::string::npos);
  EXPECT_NE(last_line("mnist", {"--dtype", "fp16"}).find("mixed_float16 needs GPUs"), std::string::npos);
  EXPECT_NE(last_line("cats_vs_dogs", {"--data_dir", "/nonexistent"}).find("/nonexistent"),
            std::string::npos);
}

TEST(Programs, WriteNothingForAMetricsFolderThatDoesNotExist) {
  TempFolder folder;
  expect_refusal("mnist", {"--metrics_json", folder.file("no/such/m.json")}, "there is no folder");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Programs, PrintHelp) {
  const ProcessResult result = run("mnist", {"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("--distribution_strategy"), std::string::npos);
}

TEST(ResnetCifarMain, TrainsOnGeneratedDataAndRepeatsItselfBitForBit) {
  TempFolder folder;
  const auto train = [&](const std::string& name, const std::string& seed) {
    const ProcessResult result = run(
        "resnet_cifar_main", {"--use-synthetic-data", "--train-steps=3", "--batch_size", "8", "--num_cpus",
                              "2", "--seed", seed, "--skip_eval", "--metrics_json", folder.file(name)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_json(folder.file(name));
  };
  const auto first = train("a.json", "1");
  EXPECT_EQ(first["steps"], 3);
  EXPECT_EQ(first["replicas"], 2);
  EXPECT_EQ(first["strategy"], "mirrored");
  EXPECT_EQ(first["seed"], 1);
  EXPECT_GE(first["threads_per_replica"], 1);
  EXPECT_GT(first["images_per_second"], 0);
  EXPECT_GT(first["loss"], 0);
  EXPECT_FALSE(first.contains("accuracy"));
  EXPECT_EQ(first["parameter_digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(train("b.json", "1")["parameter_digest"], first["parameter_digest"]);
  EXPECT_NE(train("c.json", "2")["parameter_digest"], first["parameter_digest"]);
}

TEST(ResnetCifarMain, IgnoresTfConfigWithANoticeUnderMirrored) {
  setenv("TF_CONFIG", "{not even json", 1);
  const ProcessResult result =
      run("resnet_cifar_main", {"--train_steps", "1", "--batch_size", "4", "--skip_eval"});
  unsetenv("TF_CONFIG");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("TF_CONFIG is set, but MirroredStrategy is for one machine: ignored"),
            std::string::npos)
      << result.err;
}

TEST(Quickstart, LearnsItsLine) {
  const ProcessResult result = run("quickstart", {});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("y = 3.00 x + 2.00"), std::string::npos) << result.out;
}

// One program; only the word after --distribution_strategy differs, and where the strategy has several tasks
// who starts them.
TEST(Mnist, LearnsUnderEveryStrategyThatTheFlagNames) {
  struct Case {
    std::string strategy;
    std::vector<std::string> tasks;  // of `tandem launch`; none: one process
    std::string batch;               // what is said of it
  };
  const std::vector<Case> cases{
      {"off", {}, "global batch 20 = 1 replicas x 20"},
      {"one_device", {}, "global batch 20 = 1 replicas x 20"},
      {"mirrored", {}, "global batch 20 = 2 replicas x 10"},
      {"central_storage", {}, "global batch 20 = 2 replicas x 10"},
      {"multi_worker_mirrored", {"--workers", "2"}, "global batch 20 = 2 replicas x 10"},
      {"parameter_server", {"--ps", "1", "--workers", "2"}, "global batch 20 = 1 replicas x 20"},
  };
  TempFolder folder;
  write_mnist(folder, 600, 200);
  for (const auto& [strategy, tasks, batch] : cases) {
    std::vector<std::string> command{TANDEM_BIN "/mnist",
                                     "--data_dir",
                                     folder.path(),
                                     "--train_steps",
                                     "60",
                                     "--batch_size",
                                     "20",
                                     "--seed",
                                     "1",
                                     "--verbose",
                                     "2"};
    if (strategy == "mirrored" || strategy == "central_storage") {
      command.insert(command.end(), {"--num_cpus", "2"});  // as many as there are cores, without
    }
    command.insert(command.end(), {"--distribution_strategy", strategy});
    if (!tasks.empty()) {
      std::vector<std::string> launch{TANDEM_BIN "/tandem", "launch"};
      launch.insert(launch.end(), tasks.begin(), tasks.end());
      launch.emplace_back("--");
      command.insert(command.begin(), launch.begin(), launch.end());
    }
    const ProcessResult result = run_process(command, 120);
    EXPECT_EQ(result.exit_code, 0) << strategy << "\n" << result.out << result.err;
    const std::string all = result.out + result.err;
    EXPECT_NE(all.find(batch), std::string::npos) << strategy << "\n" << all;
    EXPECT_NE(all.find(fmt::format("lenet, {}, ", strategy == "off" ? "one_device" : strategy)),
              std::string::npos)
        << all;
    const std::string accuracy = "test accuracy ";
    const auto at = all.find(accuracy);
    ASSERT_NE(at, std::string::npos) << strategy << "\n" << all;
    EXPECT_GT(std::stod(all.substr(at + accuracy.size())), 0.9) << strategy;
  }
  expect_refusal("mnist", {"--data_dir", folder.path(), "--distribution_strategy", "tpu"},
                 "TPUStrategy is not built, this version has no TPU devices: use MirroredStrategy");
}

// As the kernel names what x86 and ARM have.
bool cpu_has_bfloat16() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string word; file >> word;) {
    if (word == "avx512_bf16" || word == "amx_bf16" || word == "bf16") return true;
  }
  return false;
}

TEST(Mnist, LearnsInACustomLoopAndInHalfPrecision) {
  TempFolder folder;
  write_mnist(folder, 600, 200);
  for (const auto& [flag, value] : {std::pair{"--loop", "custom"}, {"--dtype", "bf16"}}) {
    const ProcessResult result =
        run("mnist", {"--data_dir", folder.path(), flag, value, "--train_epochs", "2", "--batch_size", "20",
                      "--num_cpus", "2", "--seed", "1", "--metrics_json", folder.file("m.json")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto figures = read_json(folder.file("m.json"));
    EXPECT_GT(figures["accuracy"], 0.9) << flag;
    EXPECT_EQ(figures["steps"], 60) << flag;
    const bool half = value == std::string("bf16");
    EXPECT_EQ(figures["dtype"], half ? "mixed_bfloat16" : "float32");
    // Where the CPU has no instructions for it, that is said.
    EXPECT_EQ(result.err.find("this CPU has no bfloat16 instructions") != std::string::npos,
              half && !cpu_has_bfloat16())
        << result.err;
  }
}

TEST(CatsVsDogs, TrainsOnDrawnPicturesHoweverManyThreadsDecodeThem) {
  TempFolder folder;
  const auto train = [&](const std::string& threads) {
    const ProcessResult result =
        run("cats_vs_dogs", {"--image_size", "32", "--width", "0.35", "--batch_size", "8", "--train_steps",
                             "3", "--num_cpus", "2", "--seed", "1", "--skip_eval", "--decode_threads",
                             threads, "--metrics_json", folder.file("m.json")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("mobilenet_v2, mirrored, 2 replicas"), std::string::npos) << result.out;
    return read_json(folder.file("m.json"))["parameter_digest"];
  };
  EXPECT_EQ(train("0"), train("3"));
}

// Ten small pictures of each of two classes.
void write_pets(const TempFolder& folder) {
  for (const char* name : {"cats", "dogs"}) {
    std::filesystem::create_directories(folder / name);
    for (int i = 0; i < 10; ++i) {
      const std::vector<std::uint8_t> pixels(3 * 40 * 40, static_cast<std::uint8_t>(20 * i));
      std::ofstream(folder / name / (std::to_string(i) + ".png"), std::ios::binary)
          << internal::encode_png({.pixels = pixels.data(), .height = 40, .width = 40, .channels = 3});
    }
  }
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(CatsVsDogs, PassesOverBrokenPicturesOrStopsAtThem) {
  TempFolder folder;
  write_pets(folder);
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--data_dir", folder.path(), "--image_size", "32", "--width", "0.35",
                             "--batch_size", "4", "--train_epochs", "2", "--num_cpus", "1", "--seed", "1"});
    return run("cats_vs_dogs", more);
  };
  const std::string text = folder.file("cats/3.jpg");
  std::ofstream(text) << "a text, and no picture";
  ProcessResult result = train({"--stop_at_broken"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("\ncats_vs_dogs: \"" + text +
                            "\" is no picture: it begins neither as a JPEG nor as a PNG file\n"),
            std::string::npos)
      << result.err;

  const std::string cut = folder.file("dogs/3.jpg");
  std::ofstream(cut, std::ios::binary) << "\xff\xd8\xff";
  result = train({});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string skipped = "skipped a picture, the next of its class takes its place: \"";
  EXPECT_EQ(count(result.err, skipped), 2) << result.err;  // in two epochs, each is named once
  EXPECT_EQ(count(result.err, skipped + text + "\" is no picture"), 1) << result.err;
  EXPECT_EQ(count(result.err, skipped + cut + "\" is a JPEG file that is cut off\n"), 1) << result.err;
  EXPECT_NE(result.out.find("broken pictures that were skipped: 2\n"), std::string::npos) << result.out;

  std::filesystem::create_directory(folder / "birds");
  result = train({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("\ncats_vs_dogs: the class folder \"" + folder.file("birds") +
                            "\" has no .jpg, .jpeg or .png file: fill or remove it\n"),
            std::string::npos)
      << result.err;
}

TEST(CatsVsDogs, TrainsAgainstAParameterServerInHalfPrecision) {
  TempFolder folder;
  write_pets(folder);
  const ProcessResult result = run_process({TANDEM_BIN "/tandem",
                                            "launch",
                                            "--ps",
                                            "1",
                                            "--workers",
                                            "2",
                                            "--",
                                            TANDEM_BIN "/cats_vs_dogs",
                                            "--distribution_strategy",
                                            "parameter_server",
                                            "--data_dir",
                                            folder.path(),
                                            "--image_size",
                                            "32",
                                            "--width",
                                            "0.35",
                                            "--batch_size",
                                            "4",
                                            "--train_steps",
                                            "6",
                                            "--dtype",
                                            "bf16",
                                            "--seed",
                                            "1",
                                            "--metrics_json",
                                            folder.file("m.json")},
                                           100);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto figures = read_json(folder.file("m.json"));
  EXPECT_EQ(figures["dtype"], "mixed_bfloat16");
  EXPECT_GE(figures["steps"], 6);
  EXPECT_TRUE(figures.contains("accuracy"));
}

TEST(Programs, ReadWhatTandemDataGenerates) {
  TempFolder folder;
  EXPECT_EQ(
      run("tandem", {"data", "fashion_mnist", folder.path(), "--generate", "--examples", "40"}).exit_code, 0);
  EXPECT_EQ(run("tandem", {"data", "cifar10", folder.path(), "--generate", "--examples", "40"}).exit_code, 0);
  EXPECT_EQ(run("mnist", {"--data_dir", folder.path(), "--train_steps", "2", "--batch_size", "10"}).exit_code,
            0);
  EXPECT_EQ(run("resnet_cifar_main",
                {"--data_dir", folder.path(), "--train_steps", "2", "--batch_size", "8", "--skip_eval"})
                .exit_code,
            0);
}

// Two tasks of a program, and what each wrote to --metrics_json.
std::vector<nlohmann::json> run_two(const std::string& program, const TempFolder& folder,
                                    std::vector<std::string> flags, std::string* out = nullptr) {
  flags.insert(flags.end(), {"--distribution_strategy", "multi_worker_mirrored"});
  ClusterOfProcesses tasks(2, flags, std::string(TANDEM_BIN) + "/" + program);
  std::vector<nlohmann::json> figures;
  const auto file = [&](int task) { return folder.file("task" + std::to_string(task) + ".json"); };
  for (int task = 0; task < 2; ++task) tasks.start(task, {"--metrics_json", file(task)});
  for (int task = 0; task < 2; ++task) {
    EXPECT_EQ(tasks[task].wait(100), 0) << tasks[task].out;
    if (out) *out += tasks[task].out;
    figures.push_back(read_json(file(task)));
  }
  return figures;
}

TEST(ResnetCifarMain, DoesOnTwoTasksWhatItDoesOnTwoReplicas) {
  TempFolder folder;
  const std::vector<std::string> flags = {"--train_steps",         "3", "--batch_size", "8", "--seed", "1",
                                          "--threads_per_replica", "1", "--skip_eval"};
  const auto figures = run_two("resnet_cifar_main", folder, flags);
  auto mirrored = flags;
  mirrored.insert(mirrored.end(), {"--num_cpus", "2", "--metrics_json", folder.file("m.json")});
  EXPECT_EQ(run("resnet_cifar_main", mirrored).exit_code, 0);
  const auto expected = read_json(folder.file("m.json"));
  for (const auto& task : figures) {
    EXPECT_EQ(task["strategy"], "multi_worker_mirrored");
    EXPECT_EQ(task["replicas"], 2);
    EXPECT_EQ(task["steps"], 3);
    EXPECT_EQ(task["loss"], expected["loss"]);
    EXPECT_EQ(task["parameter_digest"], expected["parameter_digest"]);
    // ResNet-20's 272,474 parameters, whole to the other task and back by halves.
    EXPECT_NEAR(task["bytes_sent_per_step"].get<double>(), 272474 * 4, 30000);
  }
}

TEST(Mnist, LearnsOnTwoTasks) {
  TempFolder folder;
  write_mnist(folder, 600, 200);
  std::string out;
  const auto figures =
      run_two("mnist", folder,
              {"--data_dir", folder.path(), "--train_epochs", "2", "--batch_size", "20", "--seed", "1",
               "--num_cpus", "2", "--all_reduce_alg", "ring", "--bytes_per_pack", "100000"},
              &out);
  EXPECT_GT(figures[0]["accuracy"], 0.9);
  EXPECT_EQ(figures[0]["replicas"], 4);
  EXPECT_EQ(figures[1]["accuracy"], figures[0]["accuracy"]);
  EXPECT_EQ(figures[1]["parameter_digest"], figures[0]["parameter_digest"]);
  // Only the chief shows the progress.
  EXPECT_EQ(out.find("Epoch 2/2\n30/30 - "), out.rfind("Epoch 2/2\n"));
  EXPECT_NE(out.find("data at 127.0.0.1:"), std::string::npos) << out;
}

TEST(ResnetCifarMain, TrainsAgainstParameterServersUnderTheLauncher) {
  const TempFolder folder;
  const ProcessResult result = run_process({TANDEM_BIN "/tandem",
                                            "launch",
                                            "--ps",
                                            "2",
                                            "--workers",
                                            "2",
                                            "--",
                                            TANDEM_BIN "/resnet_cifar_main",
                                            "--distribution_strategy",
                                            "parameter_server",
                                            "--batch_size",
                                            "8",
                                            "--train_steps",
                                            "12",
                                            "--skip_eval",
                                            "--model_dir",
                                            folder.file("run"),
                                            "--metrics_json",
                                            folder.file("metrics.json"),
                                            "--seed",
                                            "1"},
                                           120);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto metrics = read_json(folder.file("metrics.json"));
  EXPECT_EQ(metrics.at("strategy"), "parameter_server");
  EXPECT_EQ(metrics.at("replicas"), 1);
  EXPECT_GE(metrics.at("steps"), 12);
  EXPECT_LE(metrics.at("steps"), 13);
  for (const char* name : {"run/checkpoints/latest", "run/ps/ps-0/latest", "run/ps/ps-1/latest"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  }
  // A process less: the worker is its own ps.
  TempFolder cluster;
  const auto ports = internal::ReservedPorts::choose("127.0.0.1", 2).ports();
  std::ofstream(cluster.file("cluster.json"))
      << nlohmann::json{{"cluster",
                         {{"ps", {"127.0.0.1:" + std::to_string(ports[0])}},
                          {"worker", {"127.0.0.1:" + std::to_string(ports[1])}}}},
                        {"task", {{"type", "worker"}, {"index", 0}}}};
  const ProcessResult alone =
      run("resnet_cifar_main",
          {"--distribution_strategy", "parameter_server", "--also_ps", "--cluster_file",
           cluster.file("cluster.json"), "--batch_size", "8", "--train_steps", "2", "--skip_eval"});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_NE(alone.err.find("ps:0: the training is over after 2 updates"), std::string::npos) << alone.err;
}

TEST(Mnist, HasNothingToDoAsTheEvaluator) {
  TempFolder folder;
  setenv("TF_CONFIG",
         R"({"cluster": {"worker": ["localhost:21990", "localhost:21991"]},
             "task": {"type": "evaluator", "index": 0}})",
         1);
  const ProcessResult result = run(
      "mnist", {"--distribution_strategy", "multi_worker_mirrored", "--metrics_json", folder.file("m.json")});
  unsetenv("TF_CONFIG");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Mnist, StopsWhenTheLossIsNotANumberUnlessToldToGoOn) {
  TempFolder folder;
  write_mnist(folder, 60, 20);
  std::vector<std::string> flags = {"--data_dir",  folder.path(),    "--learning_rate",
                                    "1e30",        "--batch_size",   "10",
                                    "--skip_eval", "--metrics_json", folder.file("m.json")};
  const ProcessResult stopped = run("mnist", flags);
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_NE(stopped.err.find("the loss is "), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find("at step "), std::string::npos) << stopped.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("m.json")));
  flags.insert(flags.end(), {"--on_nan", "continue", "--train_steps", "8"});
  EXPECT_EQ(run("mnist", flags).exit_code, 0);
}

}  // namespace
}  // namespace tandem
