#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tandem/error.h"
#include "tandem/models/lenet.h"
#include "tandem/models/resnet.h"

namespace tandem::models {
namespace {

std::int64_t count_parameters(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

TEST(ResNetCifarTest, HasThePapersParameterCounts) {
  // With projections (option B) where the shape changes.
  EXPECT_EQ(count_parameters(*ResNetCifar(20)), 272474);
  EXPECT_EQ(count_parameters(*ResNetCifar(32)), 466906);
  EXPECT_EQ(count_parameters(*ResNetCifar(56)), 855770);
}

TEST(ResNetCifarTest, RefusesASizeThatDoesNotExist) {
  for (const std::int64_t size : {-4, 0, 2, 21, 51}) EXPECT_THROW(ResNetCifar{size}, InvalidArgument) << size;
}

TEST(ResNetCifarTest, GivesOneScorePerClass) {
  ResNetCifar net(20);
  EXPECT_EQ(net(torch::randn({2, 3, 32, 32})).sizes(), (at::IntArrayRef{2, 10}));
}

TEST(ResNetCifarTest, ComputesInChannelsLast) {
  ResNetCifar net(20);
  for (const auto& item : net->named_parameters()) {
    if (item.value().dim() == 4) {
      EXPECT_TRUE(item.value().is_contiguous(at::MemoryFormat::ChannelsLast)) << item.key();
    }
  }
}

TEST(LeNetTest, IsCaffes) {
  LeNet net;
  EXPECT_EQ(count_parameters(*net), 431080);
  EXPECT_EQ(net(torch::randn({2, 1, 28, 28})).sizes(), (at::IntArrayRef{2, 10}));
}

}  // namespace
}  // namespace tandem::models
