#include "tandem/data/csv.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using testing_support::message_of;
using testing_support::TempFolder;

std::string write(const TempFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.file(name)) << text;
  return folder.file(name);
}

std::vector<Batch> all(const Dataset& data) {
  std::vector<Batch> batches;
  DatasetIterator iterator = data.iterate();
  while (auto batch = iterator.next()) batches.push_back(std::move(*batch));
  return batches;
}

TEST(CsvTest, InfersWholeNumbersNumbersAndTexts) {
  const TempFolder folder;
  const auto path = write(folder, "a.csv", "n,x,name,y\n1,0.5,red,2\n-2,3,blue,4.5\n");
  const Batch batch = all(data::csv(path, {.label_name = "y"}).batch(8)).at(0);
  EXPECT_TRUE(torch::equal(batch.x["n"], torch::tensor({1, -2}, torch::kLong)));
  EXPECT_TRUE(torch::equal(batch.x["x"], torch::tensor({0.5, 3.0}, torch::kFloat)));
  EXPECT_TRUE(torch::equal(batch.x["name"], data::string_tensor({"red", "blue"})));
  EXPECT_TRUE(torch::equal(batch.y.tensor(), torch::tensor({2.0, 4.5}, torch::kFloat)));
  EXPECT_EQ(batch.x.map().size(), 3U);
}

TEST(CsvTest, EmptyCellsCountAsTheirDefaults) {
  const TempFolder folder;
  const auto path = write(folder, "a.csv", "a,b,c\n,,\n1,?,x\n");
  const Batch batch =
      all(data::csv(path, {.column_defaults = {{"b", "7.5"}}, .na_value = "?"}).batch(2)).at(0);
  EXPECT_TRUE(torch::equal(batch.x["a"], torch::tensor({0, 1}, torch::kLong)));
  EXPECT_TRUE(torch::equal(batch.x["c"], data::string_tensor({"", "x"})));
  // Nothing but empty cells: texts, unless it is said what they are.
  const Batch told = all(data::csv(path, {.column_types = {{"b", data::CsvType::kFloat}},
                                          .column_defaults = {{"b", "7.5"}},
                                          .na_value = "?"})
                             .batch(2))
                         .at(0);
  EXPECT_TRUE(torch::equal(told.x["b"], torch::tensor({7.5, 7.5}, torch::kFloat)));
}

TEST(CsvTest, NamesFileLineAndColumnOfWhatIsWrong) {
  const TempFolder folder;
  std::string text = "x,y\n";
  for (int i = 0; i < 150; ++i) text += "1,2.5\n";
  const auto ragged = write(folder, "ragged.csv", text + "1\n");
  EXPECT_EQ(message_of<DataLoss>([&] { all(data::csv(ragged)); }),
            ragged + ":152: 1 cells: expected 2, one for each column (the first without one is \"y\")");
  const auto word = write(folder, "word.csv", text + "1,ab\n");
  EXPECT_EQ(
      message_of<DataLoss>([&] { all(data::csv(word)); }),
      word +
          ":152: column \"y\" (2) is \"ab\": expected a number, as in the records before (say otherwise "
          "in column_types, or give na_value)");
  EXPECT_NE(message_of<InvalidArgument>([&] {
              data::csv(ragged, {.label_name = "z"});
            }).find("names the column \"z\": the columns are x, y"),
            std::string::npos);
  EXPECT_NE(message_of<NotFound>([&] { data::csv(folder.file("none.csv")); }).find("none.csv"),
            std::string::npos);
  EXPECT_NE(message_of<DataLoss>([&] { data::csv(write(folder, "empty.csv", "")); }).find("empty"),
            std::string::npos);
}

TEST(CsvTest, ReadsSeveralFilesWithoutHeadersAndGoesBackToAPlace) {
  const TempFolder folder;
  const std::vector<std::string> paths{write(folder, "a.csv", "1;2\n3;4\n"), write(folder, "b.csv", "5;6\n")};
  const Dataset data =
      data::csv(paths, {.label_name = "v", .column_names = {"u", "v"}, .header = false, .field_delim = ';'})
          .repeat(2);
  DatasetIterator iterator = data.iterate();
  iterator.next();
  const DatasetPosition place = iterator.position();
  const at::Tensor third = iterator.next()->y;
  while (iterator.next()) {
  }
  iterator.seek(place);
  EXPECT_TRUE(torch::equal(iterator.next()->y, third));
  EXPECT_EQ(all(data).size(), 6U);
  EXPECT_NE(message_of<DataLoss>([&] {
              all(data::csv({paths[0], write(folder, "c.csv", "1;2;3\n")},
                            {.column_names = {"u", "v"}, .header = false, .field_delim = ';'}));
            }).find("c.csv:1: 3 cells"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
