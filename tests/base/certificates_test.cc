#include "base/certificates.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <vector>

#include "base/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::TempFolder;

const std::string kClusterId = "00112233445566778899aabbccddeeff";
constexpr std::time_t kDay = 86400;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;

Certificate parse(const std::string& pem) {
  const std::unique_ptr<BIO, Freed<BIO_free>> memory(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Certificate certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
  EXPECT_NE(certificate, nullptr);
  return certificate;
}

// X509_V_OK, or why a peer that trusts `ca` refuses `certificate` `later` seconds from now.
int verify(const std::string& ca, const std::string& certificate, int purpose, std::time_t later = 0) {
  const Certificate trusted = parse(ca);
  const Certificate leaf = parse(certificate);
  const std::unique_ptr<X509_STORE, Freed<X509_STORE_free>> store(X509_STORE_new());
  X509_STORE_add_cert(store.get(), trusted.get());
  const std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), leaf.get(), nullptr);
  X509_STORE_CTX_set_purpose(context.get(), purpose);
  X509_VERIFY_PARAM* parameters = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_flags(parameters, X509_V_FLAG_X509_STRICT);
  X509_VERIFY_PARAM_set_time(parameters, std::time(nullptr) + later);
  X509_verify_cert(context.get());
  return X509_STORE_CTX_get_error(context.get());
}

// "URI:..." and "DNS:..."
std::set<std::string> subject_names(const X509* certificate) {
  std::set<std::string> found;
  const std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int kind = 0;
    const auto* value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &kind));
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                           static_cast<std::size_t>(ASN1_STRING_length(value)));
    found.insert((kind == GEN_URI ? "URI:" : kind == GEN_DNS ? "DNS:" : "other:") + text);
  }
  return found;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

TEST(Certificates, OfATaskAreTrustedByWhoeverTrustsTheAuthority) {
  const auto authority = CertificateAuthority::create();
  const auto issued = authority.issue(task_subject(kClusterId, "worker", 1), 30);
  EXPECT_EQ(verify(authority.certificate(), issued.certificate, X509_PURPOSE_SSL_SERVER), X509_V_OK);
  EXPECT_EQ(verify(authority.certificate(), issued.certificate, X509_PURPOSE_SSL_CLIENT), X509_V_OK);
}

TEST(Certificates, OfAnotherAuthorityAreRefused) {
  const auto ours = CertificateAuthority::create();
  const auto foreign = CertificateAuthority::create();
  const auto issued = foreign.issue(task_subject(kClusterId, "worker", 1), 30);
  EXPECT_EQ(verify(ours.certificate(), issued.certificate, X509_PURPOSE_SSL_SERVER),
            X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
}

TEST(Certificates, AreGoodFromFiveMinutesAgoToTheirLastDay) {
  const auto authority = CertificateAuthority::create();
  const auto issued = authority.issue(task_subject(kClusterId, "ps", 0), 30);
  const auto at = [&](std::time_t later) {
    return verify(authority.certificate(), issued.certificate, X509_PURPOSE_SSL_SERVER, later);
  };
  EXPECT_EQ(at(-290), X509_V_OK);
  EXPECT_EQ(at(-400), X509_V_ERR_CERT_NOT_YET_VALID);
  EXPECT_EQ(at(30 * kDay - 10), X509_V_OK);
  EXPECT_EQ(at(30 * kDay + 10), X509_V_ERR_CERT_HAS_EXPIRED);
  EXPECT_EQ(issued.valid_until.size(), 10u);
}

TEST(Certificates, NameTheTaskTwice) {
  const auto authority = CertificateAuthority::create();
  const auto issued = authority.issue(task_subject(kClusterId, "worker", 12), 1);
  const Certificate certificate = parse(issued.certificate);
  EXPECT_EQ(subject_names(certificate.get()),
            (std::set<std::string>{"URI:spiffe://tandem/" + kClusterId + "/worker/12",
                                   "DNS:worker-12." + kClusterId + ".tandem"}));
  EXPECT_EQ(
      X509_check_host(certificate.get(), ("worker-12." + kClusterId + ".tandem").c_str(), 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(certificate.get(), ("worker-1." + kClusterId + ".tandem").c_str(), 0, 0, nullptr),
            0);
  EXPECT_EQ(X509_check_ca(certificate.get()), 0);
  EXPECT_EQ(X509_get_extended_key_usage(certificate.get()), XKU_SSL_SERVER | XKU_SSL_CLIENT);
  EXPECT_EQ(X509_get_key_usage(certificate.get()), KU_DIGITAL_SIGNATURE);
}

TEST(Certificates, OfTheOperatorAreForClientsOnly) {
  const auto authority = CertificateAuthority::create();
  const auto issued = authority.issue(operator_subject(kClusterId), 1);
  const Certificate certificate = parse(issued.certificate);
  EXPECT_EQ(subject_names(certificate.get()),
            (std::set<std::string>{"URI:spiffe://tandem/" + kClusterId + "/operator"}));
  EXPECT_EQ(verify(authority.certificate(), issued.certificate, X509_PURPOSE_SSL_CLIENT), X509_V_OK);
  EXPECT_EQ(verify(authority.certificate(), issued.certificate, X509_PURPOSE_SSL_SERVER),
            X509_V_ERR_INVALID_PURPOSE);
}

TEST(Certificates, OfATaskCannotSignOthers) {
  const TempFolder folder;
  const auto authority = CertificateAuthority::create();
  save_certificate(folder.file("worker-0"), authority.issue(task_subject(kClusterId, "worker", 0), 1),
                   authority.certificate());
  EXPECT_NE(message_of<InvalidArgument>([&] {
              CertificateAuthority::load(folder.file("worker-0"));
            }).find("not the certificate of an authority"),
            std::string::npos);
}

TEST(Certificates, HaveLongSerialsThatNeverRepeat) {
  const auto authority = CertificateAuthority::create();
  std::set<std::string> serials;
  for (int i = 0; i < 50; ++i) {
    const auto issued = authority.issue(task_subject(kClusterId, "worker", 0), 1);
    const Certificate certificate = parse(issued.certificate);
    const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate.get());
    EXPECT_EQ(ASN1_STRING_length(serial), 16);
    serials.emplace(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)), 16u);
  }
  EXPECT_EQ(serials.size(), 50u);
}

TEST(Certificates, MustEndBeforeTheAuthority) {
  const auto authority = CertificateAuthority::create();
  const auto subject = task_subject(kClusterId, "worker", 0);
  EXPECT_NE(message_of<InvalidArgument>([&] { authority.issue(subject, 4000); }).find("good until 20"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] { authority.issue(subject, 2000000000); }).find("good until 20"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] { authority.issue(subject, 0); }).find("days is 0"),
            std::string::npos);
}

TEST(Certificates, AreNotMadeForWhatCannotBeATask) {
  for (const std::string id :
       {"", "0011", "00112233445566778899AABBCCDDEEFF", "../../../../etc/passwd/0123456789"})
    EXPECT_NE(message_of<InvalidArgument>([&] { task_subject(id, "worker", 0); }).find("32 hexadecimal"),
              std::string::npos);
  for (const std::string& job :
       std::vector<std::string>{"", "wor/ker", "..", "worker,DNS:evil", std::string(41, 'w')})
    EXPECT_NE(message_of<InvalidArgument>([&] { task_subject(kClusterId, job, 0); }).find("worker:1"),
              std::string::npos);
  EXPECT_THROW(task_subject(kClusterId, "worker", -1), InvalidArgument);
}

TEST(CertificateFolders, KeepKeysForTheirOwner) {
  const TempFolder folder;
  const auto authority = CertificateAuthority::create();
  authority.save(folder.file("ca"));
  const auto loaded = CertificateAuthority::load(folder.file("ca"));
  EXPECT_EQ(loaded.certificate(), authority.certificate());
  const auto issued = loaded.issue(task_subject(kClusterId, "worker", 0), 1);
  save_certificate(folder.file("worker-0"), issued, loaded.certificate());
  EXPECT_EQ(mode_of(folder.file("ca")), 0700u);
  EXPECT_EQ(mode_of(folder.file("ca/key.pem")), 0600u);
  EXPECT_EQ(mode_of(folder.file("worker-0")), 0700u);
  EXPECT_EQ(mode_of(folder.file("worker-0/key.pem")), 0600u);
  EXPECT_EQ(mode_of(folder.file("worker-0/cert.pem")), 0644u);
  EXPECT_EQ(read(folder.file("worker-0/ca.pem")), authority.certificate());
  EXPECT_EQ(verify(authority.certificate(), read(folder.file("worker-0/cert.pem")), X509_PURPOSE_SSL_SERVER),
            X509_V_OK);
}

TEST(CertificateFolders, AreReplacedWholeExceptTheAuthoritys) {
  const TempFolder folder;
  const auto authority = CertificateAuthority::create();
  authority.save(folder.file("ca"));
  EXPECT_NE(message_of<InvalidArgument>([&] {
              CertificateAuthority::create().save(folder.file("ca"));
            }).find("exists already"),
            std::string::npos);
  EXPECT_EQ(CertificateAuthority::load(folder.file("ca")).certificate(), authority.certificate());
  const auto subject = task_subject(kClusterId, "worker", 0);
  save_certificate(folder.file("worker-0"), authority.issue(subject, 1), authority.certificate());
  const auto renewed = authority.issue(subject, 2);
  save_certificate(folder.file("worker-0"), renewed, authority.certificate());
  EXPECT_EQ(read(folder.file("worker-0/cert.pem")), renewed.certificate);
  EXPECT_EQ(read(folder.file("worker-0/key.pem")), renewed.key);
  const std::filesystem::directory_iterator all(folder.path());
  EXPECT_EQ(std::distance(begin(all), end(all)), 2) << "nothing half made is left";
}

TEST(CertificateFolders, AreRefusedWhenSomethingIsWrong) {
  const TempFolder folder;
  const auto refusal = [&] {
    return message_of<InvalidArgument>([&] { CertificateAuthority::load(folder.file("ca")); });
  };
  EXPECT_NE(message_of<NotFound>([&] { CertificateAuthority::load(folder.file("ca")); }).find("certs init"),
            std::string::npos);
  CertificateAuthority::create().save(folder.file("ca"));
  CertificateAuthority::create().save(folder.file("other"));
  chmod(folder.file("ca/key.pem").c_str(), 0644);
  EXPECT_NE(refusal().find("chmod 600"), std::string::npos);
  std::filesystem::rename(folder / "other/key.pem", folder / "ca/key.pem");
  EXPECT_NE(refusal().find("is not the key of the certificate"), std::string::npos);
  std::filesystem::remove(folder / "ca/key.pem");
  create_file(folder.file("ca/key.pem"), "nonsense", 0600);
  EXPECT_NE(refusal().find("is not a private key"), std::string::npos);
  replace_file(folder.file("ca/cert.pem"), "nonsense");
  EXPECT_NE(refusal().find("is not a certificate"), std::string::npos);
}

}  // namespace
}  // namespace tandem::internal
