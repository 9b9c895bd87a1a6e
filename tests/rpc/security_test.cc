#include "rpc/security.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <fstream>

#include "base/certificates.h"
#include "base/secret_file.h"
#include "rpc/strangers.h"
#include "rpc/support.h"
#include "support/temp_folder.h"

namespace tandem::testing_support {
namespace {

using internal::CertificateAuthority;
using std::chrono::milliseconds;

// A file with a token.
std::string token_file(const TempFolder& folder, const std::string& name, const std::string& token) {
  internal::write_secret(folder.file(name), token);
  return folder.file(name);
}

Pair start_with(const Workers& workers, const SecurityOptions& first, const SecurityOptions& second,
                milliseconds patience = kPatience) {
  const auto made_with = [&](int index, const SecurityOptions& security) {
    return [&workers, index, security, patience] {
      return TaskServer(workers.cluster, "worker", index, {.security = security, .join_timeout = patience});
    };
  };
  return start_both(made_with(0, first), made_with(1, second));
}

TEST(Token, LetsThoseInWhoKnowIt) {
  const Workers workers(2);
  const TempFolder folder;
  const SecurityOptions security{.mode = "token",
                                 .token_file = token_file(folder, "token", "0123456789abcdef\n")};
  const Pair said = start_with(workers, security, security);
  EXPECT_EQ(said.first, "");
  EXPECT_EQ(said.second, "");
}

TEST(Token, AnotherOneIsRefusedOnBothSides) {
  const Workers workers(2);
  const TempFolder folder;
  const Pair said =
      start_with(workers, {.mode = "token", .token_file = token_file(folder, "right", "0123456789abcdef")},
                 {.mode = "token", .token_file = token_file(folder, "wrong", "0123456789abcdeF")});
  EXPECT_EQ(said.first,
            fmt::format("worker:0 is refused by worker:1 ({}): worker:1 does not know this task's token",
                        workers.address(1)));
  EXPECT_EQ(said.second,
            fmt::format("worker:1 is refused by worker:0 ({}): worker:0 does not know this task's token",
                        workers.address(0)));
}

TEST(Token, NoneIsRefusedOnBothSides) {
  const TempFolder folder;
  const SecurityOptions with{.mode = "token", .token_file = token_file(folder, "token", "0123456789abcdef")};
  for (const bool first_has_it : {true, false}) {
    const Workers workers(2);
    const Pair said =
        start_with(workers, first_has_it ? with : SecurityOptions{}, first_has_it ? SecurityOptions{} : with);
    const std::string& the_one_with = first_has_it ? said.first : said.second;
    const std::string& the_one_without = first_has_it ? said.second : said.first;
    EXPECT_NE(the_one_with.find("does not know this task's token"), std::string::npos) << the_one_with;
    EXPECT_NE(the_one_without.find("runs with --security token, this task does not"), std::string::npos)
        << the_one_without;
  }
}

TEST(Token, IsNotReadFromAFileThatOthersCanRead) {
  const Workers workers(1);
  const TempFolder folder;
  const std::string file = token_file(folder, "token", "0123456789abcdef");
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(
      message_of<InvalidArgument>([&] {
        TaskServer(workers.cluster, "worker", 0, {.security = {.mode = "token", .token_file = file}});
      }),
      fmt::format("\"{0}\" has mode 0644: a secret must be readable by its owner alone (chmod 600 '{0}')",
                  file));
}

TEST(Security, OffLoopbackItMustBeChosen) {
  const ClusterSpec cluster({{"worker", {"192.0.2.1:2222", "192.0.2.2:2222"}}});
  const auto message = [&](SecurityOptions security) {
    return message_of<InvalidArgument>(
        [&] { TaskServer(cluster, "worker", 0, {.security = std::move(security)}); });
  };
  for (const char* mode : {"", "insecure"}) {
    const std::string said = message({.mode = mode});
    EXPECT_NE(said.find("--security tls --certs DIR"), std::string::npos) << said;
    EXPECT_NE(said.find("--security token --token_file F"), std::string::npos) << said;
    EXPECT_NE(said.find("--insecure_network"), std::string::npos) << said;
    // With the choice made, the next thing that is wrong is told.
    EXPECT_NE(message({.mode = mode, .insecure_network = true}).find("no address of this machine"),
              std::string::npos);
  }
}

// Who listens everywhere is reached from anywhere, whatever the cluster says.
TEST(Security, ListeningEverywhereIsOffLoopback) {
  const Workers workers(1);
  const std::string said =
      message_of<InvalidArgument>([&] { TaskServer(workers.cluster, "worker", 0, {.bind = "0.0.0.0"}); });
  EXPECT_NE(said.find("this task listens beyond loopback"), std::string::npos) << said;
}

TEST(Security, SaysWhichModeIsInForce) {
  const Workers workers(1);
  EXPECT_EQ(TaskServer(workers.cluster).security_mode(), "insecure");
  EXPECT_EQ(TaskServer(workers.cluster, "worker", 0, {.security = {.mode = "insecure"}}).security_mode(),
            "insecure");
  const TempFolder folder;
  const SecurityOptions token{.mode = "token", .token_file = token_file(folder, "token", "0123456789abcdef")};
  EXPECT_EQ(TaskServer(workers.cluster, "worker", 0, {.security = token}).security_mode(), "token");
}

TEST(Security, SaysWhatAModeNeeds) {
  const Workers workers(1);
  const auto message = [&](SecurityOptions security) {
    return message_of<InvalidArgument>(
        [&] { TaskServer(workers.cluster, "worker", 0, {.security = std::move(security)}); });
  };
  EXPECT_EQ(message({.mode = "magic"}), "security \"magic\" is unknown: expected insecure, token or tls");
  EXPECT_NE(message({.mode = "token"}).find("--token_file F"), std::string::npos);
  EXPECT_NE(message({.mode = "tls"}).find("--certs DIR"), std::string::npos);
}

// A cluster of two with certificates, one folder for each task.
class Tls : public ::testing::Test {
 protected:
  static internal::CertificateSubject subject_of(const ClusterSpec& cluster, int index) {
    return internal::task_subject(cluster.id(), "worker", index);
  }
  std::string save(const std::string& name, const internal::IssuedCertificate& issued,
                   const std::string& authority) const {
    internal::save_certificate(folder_.file(name), issued, authority);
    return folder_.file(name);
  }
  std::string good(int index) const {
    return save(fmt::format("worker-{}", index), authority_.issue(subject_of(workers_.cluster, index), 30),
                authority_.certificate());
  }
  // Good a week ago, for a day.
  internal::IssuedCertificate expired(const internal::CertificateSubject& subject) const;

  // What the two say if worker:1 has this certificate.
  Pair start_with_second(const std::string& certs) const {
    return start_with(workers_, {.mode = "tls", .certs = good(0)}, {.mode = "tls", .certs = certs},
                      milliseconds(1500));
  }
  // What becomes of someone who calls worker:0 with this certificate and says that he is worker:1.
  std::string called_with(const internal::IssuedCertificate& issued) const;

  const TempFolder folder_;
  const Workers workers_{2};
  const CertificateAuthority authority_ = CertificateAuthority::create();
};

struct FreeOpenSsl {
  void operator()(BIO* memory) const { BIO_free(memory); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

internal::IssuedCertificate Tls::expired(const internal::CertificateSubject& subject) const {
  const auto memory = [](const std::string& pem) {
    return std::unique_ptr<BIO, FreeOpenSsl>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  };
  authority_.save(folder_.file("authority"));
  internal::IssuedCertificate issued = authority_.issue(subject, 30);
  const std::unique_ptr<EVP_PKEY, FreeOpenSsl> key(PEM_read_bio_PrivateKey(
      memory(internal::read_secret(folder_.file("authority/key.pem"))).get(), nullptr, nullptr, nullptr));
  const std::unique_ptr<X509, FreeOpenSsl> certificate(
      PEM_read_bio_X509(memory(issued.certificate).get(), nullptr, nullptr, nullptr));
  X509_time_adj_ex(X509_getm_notBefore(certificate.get()), -7, 0, nullptr);
  X509_time_adj_ex(X509_getm_notAfter(certificate.get()), -6, 0, nullptr);
  EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const std::unique_ptr<BIO, FreeOpenSsl> out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), certificate.get());
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(out.get(), &text);
  issued.certificate.assign(text, static_cast<std::size_t>(bytes));
  return issued;
}

std::string Tls::called_with(const internal::IssuedCertificate& issued) const {
  const TaskServer server(workers_.cluster, "worker", 0,
                          with_patience({.security = {.mode = "tls", .certs = good(0)}}));
  const internal::Identity as_worker_1{.cluster = workers_.cluster,
                                       .task = TaskId{"worker", 1},
                                       .incarnation = {.high = 1, .low = 2},
                                       .offer = {.key_share = std::string(internal::kNonceBytes, 's')}};
  Stranger stranger(workers_.address(0),
                    grpc::SslCredentials({authority_.certificate(), issued.key, issued.certificate}),
                    subject_of(workers_.cluster, 0).dns_name);
  const auto answer = stranger.shake_hands(as_worker_1, {"worker", 0});
  if (!answer) return "no answer";
  return answer->has_welcome() ? "welcome" : answer->refusal().message();
}

TEST_F(Tls, LetsThoseInWhoHaveACertificate) {
  const Pair said = start_with_second(good(1));
  EXPECT_EQ(said.first, "");
  EXPECT_EQ(said.second, "");
  EXPECT_EQ(called_with(authority_.issue(subject_of(workers_.cluster, 1), 30)), "welcome");
}

TEST_F(Tls, TakesTheFolderOfAllTasksToo) {
  good(1);
  const std::string all = folder_.path();
  const Pair said =
      start_with(workers_, {.mode = "tls", .certs = (good(0), all)}, {.mode = "tls", .certs = all});
  EXPECT_EQ(said.first, "");
  EXPECT_EQ(said.second, "");
}

TEST_F(Tls, ACertificateThatHasExpiredLetsNobodyIn) {
  const auto issued = expired(subject_of(workers_.cluster, 1));
  EXPECT_EQ(called_with(issued), "no answer");
  // Its owner is told before anyone else must refuse it.
  const std::string certs = save("expired", issued, authority_.certificate());
  const std::string message = message_of<InvalidArgument>(
      [&] { TaskServer(workers_.cluster, "worker", 1, {.security = {.mode = "tls", .certs = certs}}); });
  EXPECT_EQ(message.find(fmt::format("\"{}/cert.pem\" expired on 20", certs)), 0u) << message;
}

TEST_F(Tls, ACertificateThatTheAuthorityBesideItDidNotSignIsRefusedAtOnce) {
  const auto issued = CertificateAuthority::create().issue(subject_of(workers_.cluster, 1), 30);
  const std::string certs = save("mixed", issued, authority_.certificate());
  const std::string message = message_of<InvalidArgument>(
      [&] { TaskServer(workers_.cluster, "worker", 1, {.security = {.mode = "tls", .certs = certs}}); });
  EXPECT_NE(message.find("is not signed by the authority beside it"), std::string::npos) << message;
}

TEST_F(Tls, ACertificateOfAnotherAuthorityLetsNobodyIn) {
  const CertificateAuthority other = CertificateAuthority::create();
  const auto issued = other.issue(subject_of(workers_.cluster, 1), 30);
  EXPECT_EQ(called_with(issued), "no answer");
  const Pair said = start_with_second(save("foreign", issued, other.certificate()));
  EXPECT_EQ(
      said.first,
      fmt::format("worker:0 gives up after 1.5 s without worker:1 {} (its certificate has expired or is "
                  "of another authority)",
                  workers_.address(1)));
  EXPECT_EQ(
      said.second,
      fmt::format("worker:1 gives up after 1.5 s without worker:0 {} (its certificate has expired or is "
                  "of another authority)",
                  workers_.address(0)));
}

TEST_F(Tls, TheCertificateOfAnotherTaskOrClusterLetsNobodyIn) {
  const ClusterSpec other({{"worker", {"127.0.0.1:1", "127.0.0.1:2"}}});
  int number = 0;
  for (const auto& subject : {subject_of(workers_.cluster, 0), subject_of(other, 1)}) {
    const auto issued = authority_.issue(subject, 30);
    const std::string reason = fmt::format("the certificate is not that of worker:1: expected {}, got {}",
                                           subject_of(workers_.cluster, 1).uri, subject.uri);
    EXPECT_EQ(called_with(issued), reason);
    const Pair said =
        start_with_second(save(fmt::format("other{}", number++), issued, authority_.certificate()));
    EXPECT_EQ(said.first,
              fmt::format("worker:0 gives up after 1.5 s without worker:1 {} (its certificate is of another "
                          "task or another cluster)",
                          workers_.address(1)));
    EXPECT_EQ(said.second,
              fmt::format("worker:1 is refused by worker:0 ({}): {}", workers_.address(0), reason));
  }
}

TEST_F(Tls, ATaskWithoutItIsNotLetIn) {
  const Pair said = start_with(workers_, {.mode = "tls", .certs = good(0)}, {}, milliseconds(1500));
  EXPECT_NE(said.first.find("(it speaks no TLS: is its --security another one?)"), std::string::npos)
      << said.first;
  EXPECT_NE(said.second.find("(it hung up: has it the same --security"), std::string::npos) << said.second;
}

TEST_F(Tls, OnlyAnOperatorMayAskForTheState) {
  const TaskServer server(workers_.cluster, "worker", 0,
                          with_patience({.security = {.mode = "tls", .certs = good(0)}}));
  const auto answer_to = [&](const internal::CertificateSubject& subject) {
    const auto issued = authority_.issue(subject, 30);
    Stranger stranger(workers_.address(0),
                      grpc::SslCredentials({authority_.certificate(), issued.key, issued.certificate}),
                      subject_of(workers_.cluster, 0).dns_name);
    return stranger.shake_hands({.cluster = workers_.cluster}, {"worker", 0});
  };
  const auto welcome = answer_to(internal::operator_subject(workers_.cluster.id()));
  EXPECT_TRUE(welcome && welcome->has_welcome());
  const auto refusal = answer_to(subject_of(workers_.cluster, 1));
  EXPECT_TRUE(refusal && refusal->has_refusal());
}

}  // namespace
}  // namespace tandem::testing_support
