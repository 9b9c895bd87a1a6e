#include "cli/line_prefixer.h"

#include <gtest/gtest.h>

namespace tandem::internal {
namespace {

// What comes out of a stream that arrives in pieces of `piece` bytes.
std::string prefixed(const std::string& text, bool to_terminal, std::size_t piece) {
  LinePrefixer prefixer("[a] ", to_terminal);
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += piece)
    prefixer.append(std::string_view(text).substr(i, piece), out);
  prefixer.finish(out);
  return out;
}

class EveryPiece : public testing::TestWithParam<std::size_t> {
 protected:
  std::string in_file(const std::string& text) { return prefixed(text, false, GetParam()); }
  std::string on_terminal(const std::string& text) { return prefixed(text, true, GetParam()); }
};

TEST_P(EveryPiece, PrefixesEveryLineOnce) {
  EXPECT_EQ(in_file("one\ntwo\n\nfour\n"), "[a] one\n[a] two\n[a] \n[a] four\n");
  EXPECT_EQ(in_file(""), "");
}

TEST_P(EveryPiece, EndsTheLastLine) {
  EXPECT_EQ(in_file("one\ntwo"), "[a] one\n[a] two\n");
}

TEST_P(EveryPiece, TakesACarriageReturnForALineEndInAFile) {
  EXPECT_EQ(in_file("10%\r20%\r\n"), "[a] 10%\n[a] 20%\n");
  EXPECT_EQ(in_file("\r10%\r20%\ndone\r\n"), "[a] 10%\n[a] 20%\n[a] done\n");
  EXPECT_EQ(in_file("a\r\n\r\nb\r\n"), "[a] a\n[a] \n[a] b\n");
}

TEST_P(EveryPiece, DrawsOverTheLineOnATerminal) {
  EXPECT_EQ(on_terminal("\r10%\r20%\nx\n"), "\x1b[K[a] 10%\r\x1b[K[a] 20%\n\x1b[K[a] x\n");
  EXPECT_EQ(on_terminal("10%\r"), "\x1b[K[a] 10%\r\x1b[K[a] 10%\n") << "the last state stays";
  EXPECT_EQ(on_terminal("a\r\nb\n"), "\x1b[K[a] a\r\x1b[K[a] a\n\x1b[K[a] b\n");
}

INSTANTIATE_TEST_SUITE_P(Sizes, EveryPiece, testing::Values(1, 2, 3, 5, 1000));

TEST(LinePrefixer, KeepsALineUntilItIsWhole) {
  LinePrefixer prefixer("[a] ", false);
  std::string out;
  prefixer.append("half", out);
  EXPECT_EQ(out, "");
  prefixer.append(" a line\nand", out);
  EXPECT_EQ(out, "[a] half a line\n");
}

TEST(LinePrefixer, CutsALineThatNeverEnds) {
  LinePrefixer prefixer("[a] ", false);
  std::string out;
  for (int i = 0; i < 300; ++i) prefixer.append(std::string(10000, 'x'), out);
  EXPECT_GT(out.size(), 2'000'000u);
}

}  // namespace
}  // namespace tandem::internal
