#include <gtest/gtest.h>

#include "base/certificates.h"
#include "base/files.h"
#include "status/support.h"
#include "tandem/cluster_spec.h"

namespace tandem {
namespace {

using testing_support::has;
using testing_support::ProcessResult;
using testing_support::run_tandem;
using testing_support::TempFolder;
using testing_support::Workers;

using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(StatusSecurity, AsksWithTheToken) {
  const TempFolder folder;
  const auto token = [&](const std::string& name, char fill) {
    internal::create_file(folder.file(name), std::string(64, fill) + "\n", 0600);
    return Words{"--security", "token", "--token_file", folder.file(name)};
  };
  const Words right = token("right", 'a');
  const Words wrong = token("wrong", 'b');
  Workers workers(1);
  workers.start_all(right + Words{"--steps", "100000"});
  workers.task(0).wait_for("started");
  const Words status{"status", "--worker_hosts", workers.hosts()};
  const Words doctor{"doctor", "--worker_hosts", workers.hosts()};
  EXPECT_EQ(run_tandem(status + right).exit_code, 0);
  EXPECT_EQ(run_tandem(doctor + right).exit_code, 0);
  const ProcessResult refused = run_tandem(status + wrong);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "worker:0 does not know this task's token")) << refused.err;
  EXPECT_EQ(run_tandem(status).exit_code, 2);
  const ProcessResult ill = run_tandem(doctor + wrong);
  EXPECT_EQ(ill.exit_code, 1);
  EXPECT_TRUE(has(ill.out, "refuses, saying: ")) << ill.out;
}

TEST(StatusSecurity, AsksWithTheCertificateOfAnOperator) {
  Workers workers(1);
  const ClusterSpec cluster({{"worker", std::vector<std::string>{workers.hosts()}}});
  const TempFolder folder;
  const auto authority = internal::CertificateAuthority::create();
  const auto issue = [&](const std::string& name, const internal::CertificateSubject& subject) {
    internal::save_certificate(folder.file(name), authority.issue(subject, 1), authority.certificate());
  };
  issue("worker-0", internal::task_subject(cluster.id(), "worker", 0));
  const Words all{"--security", "tls", "--certs", folder.path()};
  workers.start_all(all + Words{"--steps", "100000"});
  workers.task(0).wait_for("started");
  const Words status{"status", "--worker_hosts", workers.hosts()};
  const Words doctor{"doctor", "--worker_hosts", workers.hosts()};

  // A task's own machine has its certificate alone. With it nobody can be asked, but nothing is wrong.
  const Words own{"--security", "tls", "--certs", folder.file("worker-0")};
  EXPECT_EQ(run_tandem(status + own).exit_code, 2);
  const ProcessResult unasked = run_tandem(doctor + own);
  EXPECT_EQ(unasked.exit_code, 0) << unasked.out;
  EXPECT_TRUE(has(unasked.out, "has no operator's certificate")) << unasked.out;
  EXPECT_TRUE(has(unasked.out, "takes connections; what is there was not asked")) << unasked.out;

  issue("operator", internal::operator_subject(cluster.id()));
  EXPECT_EQ(run_tandem(status + all).exit_code, 0) << run_tandem(status + all).err;
  const ProcessResult healthy = run_tandem(doctor + all);
  EXPECT_EQ(healthy.exit_code, 0) << healthy.out;
  EXPECT_TRUE(has(healthy.out, "answers: same cluster, same protocol; running")) << healthy.out;
  // Without TLS there is no answer that could be read.
  const ProcessResult plain = run_tandem(status);
  EXPECT_EQ(plain.exit_code, 75) << plain.err;
  EXPECT_EQ(run_tandem(doctor).exit_code, 1);
}

}  // namespace
}  // namespace tandem
