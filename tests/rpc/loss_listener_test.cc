#include "rpc/loss_listener.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "rpc/support.h"

namespace tandem::testing_support {
namespace {

using internal::LossListener;
using std::chrono::milliseconds;

const LostTask kLoss{.task = {"worker", 3}, .evidence = "dead"};
const LostTask kAnother{.task = {"worker", 4}, .evidence = "left"};

TEST(LossListener, IsCalledForTheFirstLossAlone) {
  LossListener listener;
  std::vector<std::string> told;
  listener.set([&](const LostTask& lost) { told.push_back(lost.task.name()); });
  listener.tell(kLoss);
  listener.tell(kLoss);
  listener.tell(kAnother);
  EXPECT_EQ(told, std::vector<std::string>{"worker:3"});
}

TEST(LossListener, OneThatComesLateIsCalledAtOnce) {
  LossListener listener;
  listener.tell(kLoss);
  std::vector<std::string> told;
  for (int i = 0; i < 2; ++i) {
    listener.set([&](const LostTask& lost) { told.push_back(lost.task.name()); });
  }
  listener.tell(kAnother);
  EXPECT_EQ(told, (std::vector<std::string>{"worker:3", "worker:3"}));
}

TEST(LossListener, OneThatWasReplacedOrRemovedIsNotCalled) {
  LossListener listener;
  int former = 0;
  int latter = 0;
  listener.set([&](const LostTask&) { ++former; });
  listener.set([&](const LostTask&) { ++latter; });
  listener.tell(kLoss);
  EXPECT_EQ(former, 0);
  EXPECT_EQ(latter, 1);
  LossListener other;
  other.set([&](const LostTask&) { ++former; });
  other.set(nullptr);
  other.tell(kLoss);
  EXPECT_EQ(former, 0);
}

// So what it refers to may be destroyed after that.
TEST(LossListener, RemovingItWaitsForACallThatIsUnderWay) {
  LossListener listener;
  std::atomic<bool> entered = false;
  std::atomic<bool> ended = false;
  listener.set([&](const LostTask&) {
    entered = true;
    std::this_thread::sleep_for(milliseconds(200));
    ended = true;
  });
  auto teller = in_thread([&] { listener.tell(kLoss); });
  EXPECT_TRUE(eventually([&] { return entered.load(); }));
  listener.set(nullptr);
  EXPECT_TRUE(ended);
  result_of(std::move(teller));
}

TEST(LossListener, MayRemoveOrReplaceItself) {
  LossListener listener;
  std::vector<int> told;
  listener.set([&](const LostTask&) {
    told.push_back(1);
    listener.set(nullptr);
    listener.set([&](const LostTask&) { told.push_back(2); });
    told.push_back(3);
  });
  result_of(in_thread([&] { listener.tell(kLoss); }));
  EXPECT_EQ(told, (std::vector<int>{1, 2, 3}));
  // Nothing is left behind that another thread would wait for.
  listener.set([&](const LostTask&) { told.push_back(4); });
  EXPECT_EQ(told.back(), 4);
}

TEST(LossListener, WhatItHoldsMayAskWhenItIsDestroyed) {
  LossListener listener;
  struct Holder {
    LossListener& listener;
    ~Holder() { listener.set(nullptr); }
  };
  auto holder = std::make_shared<Holder>(listener);
  listener.set([holder](const LostTask&) {});
  holder.reset();
  result_of(in_thread([&] { listener.tell(kLoss); }));
  holder = std::make_shared<Holder>(listener);
  listener.set([holder = std::move(holder)](const LostTask&) {});
  LossListener other;
  other.set([holder = std::make_shared<Holder>(other)](const LostTask&) {});
  result_of(in_thread([&] { other.set(nullptr); }));
}

TEST(LossListener, WhatItThrowsGoesNoFurther) {
  LossListener listener;
  listener.set([](const LostTask&) { throw std::runtime_error("no"); });
  EXPECT_NO_THROW(listener.tell(kLoss));
  EXPECT_NO_THROW(listener.set([](const LostTask&) { throw 7; }));
}

}  // namespace
}  // namespace tandem::testing_support
