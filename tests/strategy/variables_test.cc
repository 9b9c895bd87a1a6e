#include "strategy/variables.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "strategy/flat_buffers.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

int one_group(const std::string&, const at::Tensor&) {
  return 0;
}

at::Tensor parameter(at::IntArrayRef sizes) {
  return torch::randn(sizes).set_requires_grad(true);
}

ReplicaTensors copy() {
  return {
      {{"conv.weight",
        parameter({4, 3, 5, 5}).detach().contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true)},
       {"fc.weight", parameter({7, 4})},
       {"fc.bias", parameter({7})}},
      {{"bn.mean", torch::randn({4})}, {"bn.count", torch::tensor(3)}}};
}

std::string refusal(std::vector<ReplicaTensors> copies) {
  try {
    Variables variables(std::move(copies));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no InvalidArgument";
}

TEST(VariablesTest, GiveEveryCopyTheFirstOnesValues) {
  const Variables variables({copy(), copy(), copy()});
  for (int r = 1; r < 3; ++r) {
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(variables.copy(r).parameters[i].tensor.equal(variables.copy(0).parameters[i].tensor));
    }
    EXPECT_TRUE(variables.copy(r).buffers[0].tensor.equal(variables.copy(0).buffers[0].tensor));
  }
}

TEST(VariablesTest, NameTheFirstDifferenceBetweenCopies) {
  auto shape = copy();
  shape.parameters[1].tensor = parameter({7, 5});
  EXPECT_NE(
      refusal({copy(), shape})
          .find("replica 0 and replica 1: parameter \"fc.weight\" is Float [7, 4] against Float [7, 5]"),
      std::string::npos)
      << refusal({copy(), shape});
  auto dtype = copy();
  dtype.parameters[2].tensor = parameter({7}).detach().to(torch::kDouble).set_requires_grad(true);
  EXPECT_NE(refusal({copy(), dtype}).find("\"fc.bias\" is Float [7] against Double [7]"), std::string::npos);
  auto name = copy();
  name.parameters[2].name = "fc.b";
  EXPECT_NE(refusal({copy(), name}).find("parameter \"fc.bias\" against \"fc.b\""), std::string::npos);
  auto fewer = copy();
  fewer.buffers.pop_back();
  EXPECT_NE(refusal({copy(), fewer}).find("2 buffers against 1"), std::string::npos);
  auto frozen = copy();
  frozen.parameters[0].tensor.set_requires_grad(false);
  EXPECT_NE(refusal({copy(), frozen}).find("(frozen)"), std::string::npos);
}

TEST(VariablesTest, RefuseCopiesThatShareATensor) {
  const auto shared = copy();
  EXPECT_NE(refusal({shared, shared}).find("the same parameter \"conv.weight\""), std::string::npos);
}

TEST(VariablesTest, CountTiedWeightsOnceUnderTheirFirstName) {
  auto tied = copy();
  tied.parameters.push_back({"decoder.weight", tied.parameters[1].tensor});
  EXPECT_EQ(Variables({tied}).trainable(), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(Variables({tied}).read().size(), 6u);  // but both names are read
  auto alias = copy();
  alias.parameters.push_back({"alias", alias.parameters[1].tensor.detach().set_requires_grad(true)});
  EXPECT_NE(refusal({alias}).find("\"fc.weight\" and \"alias\" share memory"), std::string::npos);
  EXPECT_NE(refusal({tied,
                     [&] {
                       auto untied = copy();
                       untied.parameters.push_back({"decoder.weight", parameter({7, 4})});
                       return untied;
                     }()})
                .find("tied different weights"),
            std::string::npos);
}

TEST(VariablesTest, ReadBuffersAsTheMeanAndIntegersAsTheFirst) {
  Variables variables({copy(), copy(), copy()});
  for (int r = 0; r < 3; ++r) {
    at::Tensor mean = variables.copy(r).buffers[0].tensor;
    at::Tensor count = variables.copy(r).buffers[1].tensor;
    mean.fill_(r * r);
    count.fill_(10 + r);
  }
  EXPECT_TRUE(variables.read().at("bn.mean").equal(torch::full({4}, 5.0f / 3)));
  EXPECT_EQ(variables.read().at("bn.count").item<int>(), 10);
  {
    const BuffersAsRead as_read(variables);
    for (int r = 0; r < 3; ++r) {
      EXPECT_TRUE(variables.copy(r).buffers[0].tensor.equal(torch::full({4}, 5.0f / 3)));
      EXPECT_EQ(variables.copy(r).buffers[1].tensor.item<int>(), 10);
    }
  }
  EXPECT_EQ(variables.copy(2).buffers[0].tensor[0].item<float>(), 4.0f);
  EXPECT_EQ(variables.copy(2).buffers[1].tensor.item<int>(), 12);
}

class FlatBuffersTest : public testing::Test {
 protected:
  std::shared_ptr<Variables> variables_ =
      std::make_shared<Variables>(std::vector<ReplicaTensors>{copy(), copy()});
};

TEST_F(FlatBuffersTest, MakeEveryParameterAViewWithTheSameValuesAndStrides) {
  const auto before = variables_->read();
  const auto strides = variables_->copy(0).parameters[0].tensor.strides().vec();
  const FlatBuffers buffers(variables_, one_group);
  const auto after = variables_->read();
  for (const auto& [name, value] : before) EXPECT_TRUE(value.equal(after.at(name))) << name;
  EXPECT_EQ(variables_->copy(0).parameters[0].tensor.strides().vec(), strides);
  ASSERT_EQ(buffers.groups().size(), 1u);
  for (const Slot& slot : buffers.slots()) {
    EXPECT_EQ(slot.begin % 64, 0) << slot.name;
    const at::Tensor expected = buffers.view(buffers.parameters(1, 0), slot);
    EXPECT_TRUE(expected.equal(after.at(slot.name)));
  }
}

TEST_F(FlatBuffersTest, CollectGradientsInPlace) {
  FlatBuffers buffers(variables_, one_group);
  buffers.begin_step(0);
  const auto& parameters = variables_->copy(0).parameters;
  (parameters[1].tensor.sum() * 3).backward();
  const Slot& slot = buffers.slots()[1];
  EXPECT_TRUE(buffers.view(buffers.gradients(0, 0), slot).equal(torch::full({7, 4}, 3.0f)));
  EXPECT_TRUE(buffers.has_gradient(1));
  EXPECT_FALSE(buffers.has_gradient(0));
  EXPECT_FALSE(buffers.all_have_gradients());
  buffers.begin_step(0);
  EXPECT_TRUE(buffers.gradients(0, 0).eq(0).all().item<bool>());
  EXPECT_FALSE(buffers.has_gradient(1));
}

TEST_F(FlatBuffersTest, AttachGradientsAgainThatSomethingReplaced) {
  FlatBuffers buffers(variables_, one_group);
  at::Tensor leaf = variables_->copy(0).parameters[2].tensor;
  leaf.mutable_grad() = at::Tensor();  // as zero_grad() does since libtorch 2
  buffers.begin_step(0);
  leaf.sum().backward();
  EXPECT_TRUE(buffers.view(buffers.gradients(0, 0), buffers.slots()[2]).equal(torch::ones({7})));
}

TEST_F(FlatBuffersTest, NameAParameterThatWasMovedAway) {
  FlatBuffers buffers(variables_, one_group);
  at::Tensor leaf = variables_->copy(1).parameters[1].tensor;
  leaf.set_data(leaf.detach().clone());
  EXPECT_NO_THROW(buffers.begin_step(0));
  try {
    buffers.begin_step(1);
    FAIL();
  } catch (const FailedPrecondition& error) {
    EXPECT_NE(std::string(error.what()).find("parameter \"fc.weight\" of replica 1 was moved away"),
              std::string::npos);
  }
}

TEST_F(FlatBuffersTest, SeparateOptionGroupsAndDtypes) {
  auto mixed = copy();
  mixed.parameters.push_back({"double", parameter({3}).detach().to(torch::kDouble).set_requires_grad(true)});
  const FlatBuffers buffers(std::make_shared<Variables>(std::vector<ReplicaTensors>{mixed}),
                            [](const std::string&, const at::Tensor& p) { return p.dim() > 1 ? 0 : 1; });
  ASSERT_EQ(buffers.groups().size(), 3u);
  EXPECT_EQ(buffers.groups()[2].dtype, at::kDouble);
  EXPECT_EQ(buffers.groups()[2].option_group, 1);
}

TEST_F(FlatBuffersTest, RefuseAModelWithoutTrainableParameters) {
  auto frozen = copy();
  for (auto& [name, tensor] : frozen.parameters) tensor.set_requires_grad(false);
  EXPECT_THROW(FlatBuffers(std::make_shared<Variables>(std::vector<ReplicaTensors>{frozen}), one_group),
               InvalidArgument);
}

}  // namespace
}  // namespace tandem::internal
