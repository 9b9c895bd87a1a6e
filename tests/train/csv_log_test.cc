#include "train/csv_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temp_folder.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::FileSizeLimit;
using testing_support::message_of;
using testing_support::TempFolder;

using Logs = std::vector<std::pair<std::string, double>>;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The same values through Python's csv.DictWriter, as Keras's CSVLogger calls it.
TEST(CsvLog, IsTheFileOfKeras) {
  const TempFolder folder;
  CsvLog log(folder.file("log.csv"));
  log.add_epoch(
      0, Logs{{"loss", 2.302585}, {"accuracy", 0.1}, {"val_loss", 2}, {"val_accuracy", 0.25}, {"lr", 1e-5}});
  EXPECT_EQ(read(folder.file("log.csv")),
            "epoch,accuracy,loss,lr,val_accuracy,val_loss\r\n"
            "0,0.1,2.302585,1e-05,0.25,2.0\r\n");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  log.add_epoch(1, Logs{{"loss", nan}, {"accuracy", 0.2}, {"lr", 1e-5}, {"new", 7}});
  EXPECT_EQ(read(folder.file("log.csv")),
            "epoch,accuracy,loss,lr,val_accuracy,val_loss\r\n"
            "0,0.1,2.302585,1e-05,0.25,2.0\r\n"
            "1,0.2,nan,1e-05,NA,NA\r\n");
}

TEST(CsvLog, MakesRoomForAValidationThatMayCome) {
  const TempFolder folder;
  CsvLog log(folder.file("log.csv"));
  log.add_epoch(0, Logs{{"loss", 2}, {"accuracy", 0.5}});
  log.add_epoch(1, Logs{{"loss", 1}, {"accuracy", 0.75}, {"val_loss", 3}, {"val_accuracy", 0.5}});
  EXPECT_EQ(read(folder.file("log.csv")),
            "epoch,accuracy,loss,val_accuracy,val_loss\r\n"
            "0,0.5,2.0,NA,NA\r\n"
            "1,0.75,1.0,0.5,3.0\r\n");
}

TEST(CsvLog, BeginsAnewOrGoesOn) {
  const TempFolder folder;
  for (const bool append : {false, true, true, false, false}) {
    CsvLog(folder.file("log.csv"), {.append = append}).add_epoch(append, Logs{{"val_loss", 1}});
    if (!append) continue;
    EXPECT_EQ(read(folder.file("log.csv")).find("epoch,val_loss\r\n0,1.0\r\n1,1.0\r\n"), 0u);
  }
  EXPECT_EQ(read(folder.file("log.csv")), "epoch,val_loss\r\n0,1.0\r\n");
}

TEST(CsvLog, GoesOnUnderTheHeaderThatThereIs) {
  const TempFolder folder;
  const std::string path = folder.file("log.csv");
  const std::string header = "epoch;\"val_a;b\";\"x\"\"y\"\r\n";
  std::ofstream(path, std::ios::binary) << header;
  CsvLog(path, {.separator = ";", .append = true}).add_epoch(3, Logs{{"x\"y", 1}, {"val_a;b", 2}, {"z", 3}});
  EXPECT_EQ(read(path), header + "3;2.0;1.0\r\n");
  // Another's file: as if there were none.
  std::ofstream(path, std::ios::binary) << "a,b\n";
  CsvLog(path, {.append = true}).add_epoch(3, Logs{{"val_loss", 1}});
  EXPECT_EQ(read(path), "a,b\n3,1.0\r\n");
}

TEST(CsvLog, CutsWhatATrainingThatGoesOnHadNotWritten) {
  const TempFolder folder;
  const std::string path = folder.file("log.csv");
  std::vector<std::uint64_t> sizes;
  {
    CsvLog log(path);
    for (const int epoch : {0, 1, 2}) {
      sizes.push_back(log.size());
      log.add_epoch(epoch, Logs{{"val_loss", epoch}});
    }
  }
  const auto go_on = [&](std::uint64_t size) {
    CsvLog(path, {.resume_at = size}).add_epoch(5, Logs{{"val_loss", 5}});
    return read(path);
  };
  const std::string one = "epoch,val_loss\r\n0,0.0\r\n";
  EXPECT_EQ(go_on(sizes[2]), one + "1,1.0\r\n5,5.0\r\n");
  EXPECT_EQ(go_on(sizes[2] - 1), one + "5,5.0\r\n");  // whole lines only
  testing::internal::CaptureStderr();
  EXPECT_EQ(go_on(1000), one + "5,5.0\r\n5,5.0\r\n");
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("has 30 bytes, 970 less than"), std::string::npos) << warning;
  EXPECT_EQ(go_on(0), "epoch,val_loss\r\n5,5.0\r\n");
  std::filesystem::remove(path);
  EXPECT_EQ(go_on(0), "epoch,val_loss\r\n5,5.0\r\n");
}

TEST(CsvLog, GivesAnEmptyFileItsHeader) {
  const TempFolder folder;
  std::ofstream(folder.file("log.csv")).close();
  CsvLog(folder.file("log.csv"), {.append = true}).add_epoch(5, Logs{{"val_loss", 1}});
  EXPECT_EQ(read(folder.file("log.csv")), "epoch,val_loss\r\n5,1.0\r\n");
}

TEST(CsvLog, QuotesWhatHasTheSeparator) {
  const TempFolder folder;
  CsvLog(folder.file("log.csv"), {.separator = ";"})
      .add_epoch(0, Logs{{"val_a;b", 1}, {"val_\"q\"", 2}, {"val_,", 3}});
  EXPECT_EQ(read(folder.file("log.csv")), "epoch;\"val_\"\"q\"\"\";val_,;\"val_a;b\"\r\n0;2.0;3.0;1.0\r\n");
}

TEST(CsvLog, WritesLaterWhatAFullDiskDidNotTake) {
  const TempFolder folder;
  const std::string name =
      "val_" + std::string(1000, 'x');  // longer than what is logged, which is limited too
  const std::string first = "epoch," + name + "\r\n0,1.0\r\n";
  CsvLog log(folder.file("log.csv"));
  log.add_epoch(0, Logs{{name, 1}});
  testing::internal::CaptureStderr();
  {
    const FileSizeLimit limit(first.size() + 3);
    log.add_epoch(1, Logs{{name, 2}});
    log.add_epoch(2, Logs{{name, 3}});
    EXPECT_EQ(read(folder.file("log.csv")), first);
  }
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("csv log: training goes on"), std::string::npos) << warning;
  EXPECT_EQ(warning.find("csv log: training goes on"), warning.rfind("csv log: training goes on")) << warning;
  log.add_epoch(3, Logs{{name, 4}});
  EXPECT_EQ(read(folder.file("log.csv")), first + "1,2.0\r\n2,3.0\r\n3,4.0\r\n");
}

TEST(CsvLog, SaysAtOnceThatItCannotWrite) {
  const TempFolder folder;
  EXPECT_EQ(message_of<NotFound>([&] { CsvLog log(folder.file("no/log.csv")); }),
            "cannot write \"" + folder.file("no/log.csv") + "\": open: No such file or directory");
  EXPECT_THROW(CsvLog(folder.file("log.csv"), {.separator = ""}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::internal
