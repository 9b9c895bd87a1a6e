// Weights in a file, and the model's computation in one.
#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/checkpoint_store.h"
#include "checkpoint/tensors.h"
#include "support/errors.h"
#include "support/oracle.h"
#include "support/temp_folder.h"
#include "support/tensors.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing_support::message_of;
using testing_support::mirrored;
using testing_support::near;
using testing_support::TempFolder;
using testing_support::Values;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t files_in(const TempFolder& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

// Convolutions in channels-last strides, batch norm, dropout.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    for (auto& one : parameters()) {
      if (one.dim() == 4) one.set_data(one.contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return fc(dropout(norm(conv(x)).relu_().mean({2, 3}))); }

  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(3, 8, 3))};
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(8))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.5))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(8, 4))};
};
TORCH_MODULE(SmallNet);

template <typename Factory>
Model make(const Strategy& strategy, Factory factory, std::uint64_t seed = 1) {
  return strategy.scope([&] {
    Model m(factory, {.seed = seed});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}),
               .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
}

at::Tensor pictures(std::int64_t rows, std::vector<std::int64_t> shape = {3, 8, 8}) {
  torch::manual_seed(5);
  shape.insert(shape.begin(), rows);
  return torch::randn(shape) * 3 + 1;
}

// After which the replicas have statistics of their own.
template <typename Factory>
Model trained(const Strategy& strategy, Factory factory, std::vector<std::int64_t> shape = {3, 8, 8}) {
  Model model = make(strategy, factory);
  const auto data = Dataset::from_tensors(pictures(16, shape), torch::arange(16).remainder(4));
  model.fit(data.batch(8), {.verbose = Verbose::kSilent});
  return model;
}

const auto kSmallNet = [] { return SmallNet(); };
const auto kTwoLayers = [] {
  return torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::Linear(3, 1));
};

void write(const std::string& path, const Values& values) {
  internal::PosixFileSystem files;
  internal::write_safetensors(files, path, internal::bytes_of_all(values));
}

void save_checkpoint(const std::string& folder, std::int64_t step, const Values& values) {
  const auto tensors = internal::bytes_of_all(values);
  ASSERT_TRUE(internal::CheckpointStore(folder).save({.step = step}, tensors, "{}").ok());
}

TEST(TensorsTest, HaveTheFormatsTypesAndNoOthers) {
  for (const auto& [name, dtype] : std::map<std::string, at::ScalarType>{{"F16", at::kHalf},
                                                                         {"BF16", at::kBFloat16},
                                                                         {"F32", at::kFloat},
                                                                         {"F64", at::kDouble},
                                                                         {"I8", at::kChar},
                                                                         {"I16", at::kShort},
                                                                         {"I32", at::kInt},
                                                                         {"I64", at::kLong},
                                                                         {"U8", at::kByte},
                                                                         {"BOOL", at::kBool}}) {
    EXPECT_EQ(internal::dtype_name("t", dtype), name);
    const at::Tensor made = internal::empty_like_entry({.name = "t", .dtype = name, .shape = {2, 3}});
    EXPECT_EQ(made.scalar_type(), dtype);
    EXPECT_EQ(made.sizes(), at::IntArrayRef({2, 3}));
    const internal::TensorBytes bytes = internal::bytes_of("t", made);
    EXPECT_EQ(bytes.bytes.size(), internal::tensor_bytes(name, bytes.shape));
    EXPECT_EQ(bytes.bytes.data(), made.data_ptr());
  }
  EXPECT_TRUE(has(message_of<InvalidArgument>([] { internal::dtype_name("a.b", at::kComplexFloat); }),
                  "tensor \"a.b\" has dtype ComplexFloat: expected one of F16, BF16"));
  EXPECT_TRUE(has(message_of<InvalidArgument>([] { internal::dtype_from_name("a.b", "U64"); }),
                  "tensor \"a.b\" has dtype U64"));
}

TEST(WeightsFileTest, BringsEveryValueToAnotherModel) {
  const TempFolder folder;
  Model model = trained(mirrored(2), kSmallNet);
  model.save_weights(folder.file("w.safetensors"));
  EXPECT_EQ(files_in(folder), 1u);
  for (const int replicas : {1, 4}) {
    Model other = make(mirrored(replicas), kSmallNet, 77);
    EXPECT_NE(other.parameter_digest(), model.parameter_digest());
    other.load_weights(folder.file("w.safetensors"));
    EXPECT_EQ(other.parameter_digest(), model.parameter_digest());
  }
}

TEST(WeightsFileTest, IsPlainSafetensors) {
  const TempFolder folder;
  const Model model = make(mirrored(2), kSmallNet);
  model.save_weights(folder.file("w"));
  internal::PosixFileSystem files;
  const internal::SafetensorsFile file(files, folder.file("w"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const Values values = model.values();
  ASSERT_EQ(file.tensors().size(), values.size());
  for (const auto& entry : file.tensors()) {
    const at::Tensor read = internal::empty_like_entry(entry);
    file.read(entry, internal::writable_bytes(read));
    EXPECT_TRUE(read.equal(values.at(entry.name))) << entry.name;
  }
}

TEST(WeightsFileTest, NamesEverythingThatDoesNotFitAtOnce) {
  const TempFolder folder;
  write(folder.file("w"), {{"0.weight", torch::zeros({3, 3})},
                           {"0.bias", torch::zeros({3})},
                           {"2.weight", torch::zeros({1})},
                           {"head", torch::zeros({1})}});
  Model model = make(mirrored(2), kTwoLayers);
  const std::string before = model.parameter_digest();
  const auto load = [&](bool expect_partial) {
    return message_of<InvalidArgument>(
        [&] { model.load_weights(folder.file("w"), {.expect_partial = expect_partial}); });
  };
  EXPECT_EQ(
      load(false),
      folder.file("w") +
          " does not fit the model: it lacks 2 (\"1.bias\", \"1.weight\"); the model has no 2 "
          "(\"2.weight\", \"head\"); \"0.weight\" is F32 [3, 3] where the model has F32 [3, 2] (to load "
          "what fits: expect_partial, skip_mismatch)");
  EXPECT_EQ(load(true),
            folder.file("w") +
                " does not fit the model: \"0.weight\" is F32 [3, 3] where the model has F32 [3, 2] (to load "
                "what fits: skip_mismatch)");
  EXPECT_EQ(model.parameter_digest(), before);
}

TEST(WeightsFileTest, CountsWhatIsTooMuchToList) {
  const TempFolder folder;
  Values values;
  for (int i = 0; i < 40; ++i) values["layer" + std::to_string(10 + i)] = torch::zeros({1});
  write(folder.file("w"), values);
  Model model = make(mirrored(1), kTwoLayers);
  EXPECT_TRUE(
      has(message_of<InvalidArgument>([&] { model.load_weights(folder.file("w")); }),
          "the model has no 40 (\"layer10\", \"layer11\", \"layer12\", \"layer13\", \"layer14\", ...)"));
  EXPECT_TRUE(has(
      message_of<InvalidArgument>([&] { model.load_weights(folder.file("w"), {.expect_partial = true}); }),
      "none of its names is in the model: 40 ("));
}

TEST(WeightsFileTest, LoadsAPartIfThatIsExpected) {
  const TempFolder folder;
  write(folder.file("w"), {{"0.bias", torch::full({3}, 7.0)}, {"head", torch::zeros({1})}});
  Model model = make(mirrored(2), kTwoLayers);
  Values expected = model.values();
  EXPECT_TRUE(has(message_of<InvalidArgument>([&] { model.load_weights(folder.file("w")); }),
                  "(to load what fits: expect_partial)"));
  model.load_weights(folder.file("w"), {.expect_partial = true});
  expected["0.bias"] = torch::full({3}, 7.0);
  for (const auto& [name, value] : model.values()) EXPECT_TRUE(value.equal(expected.at(name))) << name;
}

TEST(WeightsFileTest, LeavesOutWhatIsOfAnotherShapeIfTold) {
  const TempFolder folder;
  write(folder.file("w"), {{"0.weight", torch::ones({3, 2})},
                           {"0.bias", torch::ones({3})},
                           {"1.weight", torch::ones({2, 3})},
                           {"1.bias", torch::ones({2})}});
  Model model = make(mirrored(2), kTwoLayers);
  Values expected = model.values();
  model.load_weights(folder.file("w"), {.skip_mismatch = true});
  expected["0.weight"] = torch::ones({3, 2});
  expected["0.bias"] = torch::ones({3});
  for (const auto& [name, value] : model.values()) EXPECT_TRUE(value.equal(expected.at(name))) << name;

  // But not where nothing would be left, or something is missing.
  write(folder.file("w"), {{"0.weight", torch::ones({1})}});
  EXPECT_EQ(
      message_of<InvalidArgument>(
          [&] { model.load_weights(folder.file("w"), {.expect_partial = true, .skip_mismatch = true}); }),
      folder.file("w") + " does not fit the model: \"0.weight\" is F32 [1] where the model has F32 [3, 2]");
  write(folder.file("w"), {{"0.bias", torch::ones({3})}, {"1.bias", torch::ones({2})}});
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { model.load_weights(folder.file("w"), {.skip_mismatch = true}); }),
      folder.file("w") +
          " does not fit the model: it lacks 2 (\"0.weight\", \"1.weight\") (to load what fits: "
          "expect_partial)");
}

TEST(WeightsFileTest, TakesTorchvisionsWeightsToOtherClasses) {
  const TempFolder folder;
  // The names and shapes of torchvision's file, for its 10 classes.
  const auto theirs =
      testing_support::read_oracle("torchvision_models")["models"]["mobilenet_v2_0.35"]["tensors"];
  torch::manual_seed(3);
  Values file;
  for (const auto& [name, shape] : theirs.items()) {
    const auto sizes = shape.get<std::vector<std::int64_t>>();
    file[name] = name.ends_with("num_batches_tracked") ? torch::tensor(7, torch::kLong)
                                                       : torch::rand(sizes) * 0.1 + 0.01;
  }
  write(folder.file("w"), file);
  Model model = make(mirrored(2), [] {
    return models::MobileNetV2(models::MobileNetV2Options{.classes = 4, .width = 0.35});
  });
  const Values before = model.values();
  EXPECT_EQ(message_of<InvalidArgument>([&] { model.load_weights(folder.file("w")); }),
            folder.file("w") +
                " does not fit the model: \"classifier.1.bias\" is F32 [10] where the model has F32 [4]; "
                "\"classifier.1.weight\" is F32 [10, 1280] where the model has F32 [4, 1280] (to load what "
                "fits: skip_mismatch)");
  model.load_weights(folder.file("w"), {.skip_mismatch = true});
  for (const auto& [name, value] : model.values()) {
    EXPECT_TRUE(value.equal(name.starts_with("classifier.") ? before.at(name) : file.at(name))) << name;
  }
  const auto data = Dataset::from_tensors(pictures(8, {3, 32, 32}), torch::arange(8).remainder(4));
  EXPECT_EQ(model.fit(data.batch(8), {.verbose = Verbose::kSilent}).steps, 1);
  EXPECT_FALSE(model.values().at("classifier.1.weight").equal(before.at("classifier.1.weight")));
}

TEST(WeightsFileTest, ConvertsFloatingPointOnly) {
  const TempFolder folder;
  const auto factory = [] { return torch::nn::BatchNorm1d(2); };
  Model model = make(mirrored(1), factory);
  Values values = model.values();
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kDouble}) {
    values["weight"] = torch::tensor({1.5, -3.0}).to(dtype);
    write(folder.file("w"), values);
    model.load_weights(folder.file("w"));
    EXPECT_TRUE(model.values().at("weight").equal(torch::tensor({1.5F, -3.0F}))) << dtype;
  }
  values["num_batches_tracked"] = torch::tensor(3.0);
  write(folder.file("w"), values);
  EXPECT_TRUE(has(message_of<InvalidArgument>([&] { model.load_weights(folder.file("w")); }),
                  "\"num_batches_tracked\" is F32 [] where the model has I64 []"));
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    first = register_parameter("first", torch::randn({3, 3}));
    register_parameter("second", first);
  }
  at::Tensor forward(const at::Tensor& x) { return at::matmul(at::matmul(x, first), first); }
  at::Tensor first;
};
TORCH_MODULE(Tied);

TEST(WeightsFileTest, NeedsTiedWeightsOnce) {
  const TempFolder folder;
  Model model = make(mirrored(2), [] { return Tied(); });
  write(folder.file("w"), {{"second", torch::ones({3, 3})}});
  model.load_weights(folder.file("w"));
  EXPECT_TRUE(model.values().at("first").equal(torch::ones({3, 3})));
  model.save_torchscript(folder.file("m.pt"), torch::randn({2, 3}));
  torch::jit::Module script = torch::jit::load(folder.file("m.pt"));
  EXPECT_TRUE(script.attr("first").toTensor().is_alias_of(script.attr("second").toTensor()));
}

TEST(WeightsFileTest, RefusesFilesThatWouldRunCodeAndOtherKinds) {
  const TempFolder folder;
  Model model = make(mirrored(1), kTwoLayers);
  const auto refused = [&](const std::string& contents) {
    std::ofstream(folder.file("w"), std::ios::binary) << contents << std::string(100, 'x');
    return message_of<InvalidArgument>([&] { model.load_weights(folder.file("w")); });
  };
  EXPECT_TRUE(has(refused("PK\x03\x04"), "is a zip archive, as torch.save and torch.jit.save write"));
  EXPECT_TRUE(has(refused("\x80\x02}q"), "is a Python pickle"));
  EXPECT_TRUE(has(refused("\x89HDF\r\n"), "is an HDF5 file, as Keras writes"));
  EXPECT_TRUE(has(message_of<Error>([&] { model.load_weights(folder.file("none")); }), "No such file"));
  EXPECT_TRUE(
      has(message_of<NotFound>([&] { model.load_weights(folder.path()); }), "there is no checkpoint"));
}

TEST(WeightsFileTest, LeavesTheOldFileIfTheNewOneCannotBeWritten) {
  const TempFolder folder;
  const Model model = make(mirrored(1), kTwoLayers);
  EXPECT_TRUE(has(message_of<Error>([&] { model.save_weights(folder.file("no/w")); }), "No such file"));
  std::filesystem::create_directories(folder / "taken/inside");
  EXPECT_THROW(model.save_weights(folder.file("taken")), Error);
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(WeightsFileTest, IsAlsoACheckpointOrAFolderOfThem) {
  const TempFolder folder;
  const Model source = make(mirrored(1), kTwoLayers, 5);
  Values first = source.values();
  first["1.bias"] = torch::tensor({1.0F});
  first["@optimizer.step"] = torch::tensor(3);
  first["0.bias@replica0"] = torch::zeros({3});
  Values second = first;
  second["1.bias"] = torch::tensor({2.0F});
  save_checkpoint(folder.path(), 10, first);
  save_checkpoint(folder.path(), 20, second);

  Model model = make(mirrored(2), kTwoLayers);
  model.load_weights(folder.path() + "/");
  EXPECT_EQ(model.values().at("1.bias").item<float>(), 2);
  model.load_weights(folder.file("step-000000000010.g000000"));
  EXPECT_EQ(model.values().at("1.bias").item<float>(), 1);

  // A byte of the newest is turned: the one before is taken.
  const std::string shard = folder.file("step-000000000020.g000000/shard-0-of-1.safetensors");
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x55');
  file.close();
  model.load_weights(folder.file("step-000000000010.g000000"));
  model.load_weights(folder.path());
  EXPECT_EQ(model.values().at("1.bias").item<float>(), 1);
  EXPECT_THROW(model.load_weights(folder.file("step-000000000020.g000000")), DataLoss);
}

TEST(WeightsFileTest, IsAlsoAWholeModel) {
  const TempFolder folder;
  Model model = trained(mirrored(2), kSmallNet);
  model.save(folder.file("model"));
  Model other = make(mirrored(1), kSmallNet, 77);
  other.load_weights(folder.file("model"));
  EXPECT_EQ(other.parameter_digest(), model.parameter_digest());
  EXPECT_EQ(other.global_step(), 0);
}

// What a program without this code would see.
at::Tensor run_file(const std::string& path, std::vector<c10::IValue> inputs) {
  const torch::NoGradGuard no_grad;
  return torch::jit::load(path).forward(std::move(inputs)).toTensor();
}

void expect_exports(Model model, const at::Tensor& x) {
  const TempFolder folder;
  const std::string before = model.parameter_digest();
  model.save_torchscript(folder.file("m.pt"), x.slice(0, 0, 2));
  EXPECT_EQ(files_in(folder), 1u);
  EXPECT_EQ(model.parameter_digest(), before);
  const auto data = Dataset::from_tensors(x, torch::zeros({x.size(0)}));
  EXPECT_TRUE(near(run_file(folder.file("m.pt"), {x}), model.predict(data.batch(4)), 1e-4));
  EXPECT_TRUE(
      near(run_file(folder.file("m.pt"), {x.slice(0, 0, 1)}), model.predict(data.take(1).batch(4)), 1e-4));

  const Values values = model.values();
  const torch::jit::Module script = torch::jit::load(folder.file("m.pt"));
  std::size_t tensors = 0;
  const auto expect_same = [&](const auto& named) {
    for (const auto& one : named) {
      ASSERT_TRUE(values.contains(one.name)) << one.name;
      EXPECT_TRUE(one.value.equal(values.at(one.name))) << one.name;
      EXPECT_TRUE(one.value.is_contiguous()) << one.name;
      EXPECT_EQ(one.value.storage().nbytes(), one.value.nbytes()) << one.name;
      ++tensors;
    }
  };
  expect_same(script.named_parameters());
  expect_same(script.named_buffers());
  EXPECT_EQ(tensors, values.size());
  EXPECT_FALSE(script.is_training());
}

TEST(TorchScriptTest, GivesTheModelsValuesUnderItsNames) {
  expect_exports(trained(mirrored(2), kSmallNet), pictures(5));
}

TEST(TorchScriptTest, HoldsForOurModels) {
  expect_exports(make(mirrored(2), [] { return models::LeNet(); }), pictures(5, {1, 28, 28}));
  expect_exports(trained(mirrored(2), [] { return models::ResNetCifar(8); }, {3, 16, 16}),
                 pictures(5, {3, 16, 16}));
}

TEST(TorchScriptTest, HoldsForSynchronisedBatchNorm) {
  const auto strategy = mirrored(2);
  Model model = strategy.scope([] {
    return Model([] { return torch::nn::Sequential(torch::nn::Linear(3, 4), SyncBatchNorm(4)); },
                 {.seed = 1, .sync_batch_norm = true});
  });
  expect_exports(model, pictures(5, {3}));
}

TEST(TorchScriptTest, LeavesTheModelInItsMode) {
  const TempFolder folder;
  const auto strategy = mirrored(2);
  Model model = make(strategy, kSmallNet);
  const auto in_training = [&] {
    return strategy.run([&](ReplicaContext& replica) {
      const auto modules = model.on(replica).module().modules();
      return static_cast<std::size_t>(
          std::ranges::count_if(modules, [](const auto& one) { return one->is_training(); }));
    });
  };
  model.save_torchscript(folder.file("m.pt"), pictures(2));
  for (const std::size_t training : in_training()) EXPECT_EQ(training, 5u);
}

struct TwoInputsImpl : torch::nn::Module {
  at::Tensor forward(const Tensors::Map& x) { return fc(x.at("image").flatten(1)) * x.at("scale"); }
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4, 2))};
};
TORCH_MODULE(TwoInputs);

TEST(TorchScriptTest, TakesNamedInputsAsNamedArguments) {
  const TempFolder folder;
  Model model = make(mirrored(1), [] { return TwoInputs(); });
  const at::Tensor image = torch::randn({3, 2, 2}), scale = torch::randn({3, 1});
  model.save_torchscript(folder.file("m.pt"), Tensors::Map{{"image", image}, {"scale", scale}});
  torch::jit::Module script = torch::jit::load(folder.file("m.pt"));
  const torch::NoGradGuard no_grad;
  const at::Tensor named = script.get_method("forward")({}, {{"scale", scale}, {"image", image}}).toTensor();
  const Values values = model.values();
  EXPECT_TRUE(
      near(named, at::linear(image.flatten(1), values.at("fc.weight"), values.at("fc.bias")) * scale));
  EXPECT_TRUE(has(message_of<InvalidArgument>([&] {
                    model.save_torchscript(folder.file("n.pt"), Tensors::Map{{"an image", image}});
                  }),
                  "the input \"an image\" cannot be an argument"));
}

struct BakedImpl : torch::nn::Module {
  explicit BakedImpl(bool silently) : silently(silently) {}
  at::Tensor forward(const at::Tensor& x) {
    return silently ? fc(x) * static_cast<double>(x.size(0)) : fc(x.view({x.size(0), -1}));
  }
  bool silently;
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(6, 2))};
};
TORCH_MODULE(Baked);

TEST(TorchScriptTest, RefusesAModelThatWouldKeepTheExamplesBatchSize) {
  for (const bool silently : {false, true}) {
    const TempFolder folder;
    std::ofstream(folder.file("m.pt")) << "an older one";
    Model model = make(mirrored(1), [&] { return Baked(silently); });
    const std::string message = message_of<InvalidArgument>([&] {
      model.save_torchscript(folder.file("m.pt"), torch::randn({2, 6}));
    });
    EXPECT_TRUE(has(message,
                    "with 3 rows in place of 2, the trace has kept the batch size of the example: in "
                    "the model's forward write x.flatten(1) instead of x.view({x.size(0), ...})"))
        << message;
    EXPECT_EQ(files_in(folder), 1u);
    EXPECT_EQ(std::filesystem::file_size(folder / "m.pt"), 12u);
  }
}

struct NoisyImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return fc(x + at::randn_like(x)); }
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(6, 2))};
};
TORCH_MODULE(Noisy);

TEST(TorchScriptTest, RefusesAModelThatIsNoFunction) {
  const TempFolder folder;
  Model model = make(mirrored(1), [] { return Noisy(); });
  EXPECT_TRUE(has(message_of<InvalidArgument>([&] {
                    model.save_torchscript(folder.file("m"), torch::randn({2, 6}));
                  }),
                  "it must not draw random numbers"));
  EXPECT_TRUE(has(message_of<InvalidArgument>([&] { model.save_torchscript(folder.file("m"), {}); }),
                  "needs an example"));
  EXPECT_TRUE(has(message_of<InvalidArgument>([&] {
                    model.save_torchscript(folder.file("m"), torch::randn({2, 7}));
                  }),
                  "cannot trace the model for"));
  EXPECT_EQ(files_in(folder), 0u);
}

}  // namespace
}  // namespace tandem
