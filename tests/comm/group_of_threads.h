#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/group.h"
#include "tandem/communicator.h"

namespace tandem::testing_support {

// What each member of a group on the loopback of this machine needs to join it.
inline std::vector<internal::GroupSetup> loopback_group(int size,
                                                        const std::string& key = "a key of the tests") {
  std::vector<std::unique_ptr<internal::DataPort>> ports;
  std::vector<internal::Member> members;
  for (int rank = 0; rank < size; ++rank) {
    ports.push_back(std::make_unique<internal::DataPort>("127.0.0.1"));
    members.push_back({.name = "worker:" + std::to_string(rank),
                       .host = "127.0.0.1",
                       .data_address = ports.back()->address()});
  }
  std::vector<internal::GroupSetup> setups;
  for (int rank = 0; rank < size; ++rank) {
    setups.push_back({.rank = rank,
                      .members = members,
                      .port = std::move(ports[static_cast<std::size_t>(rank)]),
                      .cluster_id = "0123456789abcdef0123456789abcdef",
                      .generation = 1,
                      .key = key,
                      .connect_timeout = std::chrono::seconds(20)});
  }
  return setups;
}

// Runs fn for every member of a group, each on a thread of its own. What one throws is a failure of the test;
// the others then find that it is gone.
inline void run_group(int size, const CommunicationOptions& options,
                      const std::function<void(Communicator&)>& fn) {
  std::vector<internal::GroupSetup> setups = loopback_group(size);
  std::vector<std::thread> threads;
  for (auto& setup : setups) {
    threads.emplace_back([&options, &fn, setup = std::move(setup)]() mutable {
      const int rank = setup.rank;
      try {
        Communicator group = internal::join_group(std::move(setup), options);
        EXPECT_EQ(group.rank(), rank);
        fn(group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "member " << rank << ": " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace tandem::testing_support
