#include "base/certificates.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/files.h"
#include "base/hmac.h"
#include "base/new_folder.h"
#include "base/secret_file.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr int kAuthorityDays = 3653;  // ten years
// Clocks of different machines differ; a certificate must not be from the future anywhere.
constexpr int kSecondsBefore = 300;
constexpr int kSecondsPerDay = 86400;
constexpr mode_t kReadableByAll = 0644;

struct Free {
  void operator()(BIO* memory) const { BIO_free(memory); }
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// For what fails only without memory or randomness.
void check(bool done, const char* what) {
  if (done) return;
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code ? ERR_reason_error_string(code) : nullptr;
  throw Error(ErrorCode::kInternal, fmt::format("OpenSSL could not {}: {}", what, reason ? reason : "?"));
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(memory, &data);
  return {data, static_cast<std::size_t>(bytes)};
}

std::string to_pem(const X509* certificate) {
  const Owned<BIO> memory(BIO_new(BIO_s_mem()));
  check(memory && PEM_write_bio_X509(memory.get(), certificate) == 1, "write a certificate");
  return text_of(memory.get());
}

std::string to_pem(const EVP_PKEY* key) {
  // Memory of this kind is overwritten when it is freed.
  const Owned<BIO> memory(BIO_new(BIO_s_secmem()));
  check(
      memory && PEM_write_bio_PKCS8PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
      "write a key");
  return text_of(memory.get());
}

// A key with a pass phrase must be refused; OpenSSL would ask for it at the terminal.
int no_pass_phrase(char*, int, int, void*) {
  return -1;
}

void set_random_serial(X509* certificate) {
  std::array<unsigned char, 16> bytes{};
  random_bytes(bytes.data(), bytes.size());
  bytes[0] &= 0x7f;  // positive without a seventeenth byte
  bytes[0] |= 0x40;  // all of the same length
  const Owned<BIGNUM> number(BN_bin2bn(bytes.data(), bytes.size(), nullptr));
  check(number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)),
        "set a serial number");
}

void set_validity(X509* certificate, int days) {
  check(X509_gmtime_adj(X509_getm_notBefore(certificate), -kSecondsBefore) &&
            X509_time_adj_ex(X509_getm_notAfter(certificate), days, 0, nullptr),
        "set the dates of a certificate");
}

void set_name(X509_NAME* name, const std::string& common_name) {
  const auto add = [&](const char* field, const std::string& value) {
    check(X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                     reinterpret_cast<const unsigned char*>(value.data()),
                                     static_cast<int>(value.size()), -1, 0) == 1,
          "name a certificate");
  };
  add("O", "tandem");
  add("CN", common_name);
}

void add_extension(X509* certificate, const X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, const_cast<X509*>(issuer), certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  check(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "extend a certificate");
}

void add_subject_names(X509* certificate, const CertificateSubject& subject) {
  const Owned<GENERAL_NAMES> names(GENERAL_NAMES_new());
  check(names != nullptr, "name a certificate");
  const auto add = [&](int kind, const std::string& text) {
    ASN1_IA5STRING* value = ASN1_IA5STRING_new();
    GENERAL_NAME* name = GENERAL_NAME_new();
    check(value && name && ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) == 1,
          "name a certificate");
    GENERAL_NAME_set0_value(name, kind, value);
    check(sk_GENERAL_NAME_push(names.get(), name) > 0, "name a certificate");
  };
  add(GEN_URI, subject.uri);
  if (!subject.dns_name.empty()) add(GEN_DNS, subject.dns_name);
  check(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) == 1,
        "name a certificate");
}

void sign(X509* certificate, EVP_PKEY* key) {
  check(X509_sign(certificate, key, EVP_sha256()) > 0, "sign a certificate");
}

std::string date_of(const ASN1_TIME* time) {
  std::tm parts{};
  check(ASN1_TIME_to_tm(time, &parts) == 1, "read a date");
  return fmt::format("{:%Y-%m-%d}", parts);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw NotFound(fmt::format("cannot read \"{}\"", path));
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Read>
auto parse(const std::string& name, const std::string& text, const char* what, Read read) {
  const Owned<BIO> memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  check(memory != nullptr, "read a file");
  auto parsed = read(memory.get());
  ERR_clear_error();
  if (!parsed) throw InvalidArgument(fmt::format("\"{}\" is not {} in PEM", name, what));
  return parsed;
}

X509* parse_certificate(const std::string& name, const std::string& text) {
  return parse(name, text, "a certificate",
               [](BIO* memory) { return PEM_read_bio_X509(memory, nullptr, nullptr, nullptr); });
}

EVP_PKEY* parse_key(const std::string& name, const std::string& text) {
  return parse(name, text, "a private key without a pass phrase",
               [](BIO* memory) { return PEM_read_bio_PrivateKey(memory, nullptr, no_pass_phrase, nullptr); });
}

void check_cluster_id(const std::string& cluster_id) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (cluster_id.size() == 32 && std::all_of(cluster_id.begin(), cluster_id.end(), is_digit)) return;
  throw InvalidArgument(fmt::format(
      "cluster id \"{}\": expected 32 hexadecimal digits in lower case, as tandem config check prints",
      cluster_id));
}

}  // namespace

CertificateSubject task_subject(const std::string& cluster_id, const std::string& job, int index) {
  check_cluster_id(cluster_id);
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  // The limits are those of a certificate's common name and of a DNS label.
  if (job.empty() || job.size() > 40 || !std::all_of(job.begin(), job.end(), is_letter) || index < 0) {
    throw InvalidArgument(
        fmt::format("\"{}:{}\" cannot be named in a certificate: expected e.g. worker:1", job, index));
  }
  return {.name = fmt::format("{}:{}", job, index),
          .uri = fmt::format("spiffe://tandem/{}/{}/{}", cluster_id, job, index),
          .dns_name = fmt::format("{}-{}.{}.tandem", job, index, cluster_id)};
}

CertificateSubject operator_subject(const std::string& cluster_id) {
  check_cluster_id(cluster_id);
  return {.name = "operator", .uri = fmt::format("spiffe://tandem/{}/operator", cluster_id), .dns_name = ""};
}

void CertificateAuthority::Free::operator()(evp_pkey_st* key) const {
  EVP_PKEY_free(key);
}

void CertificateAuthority::Free::operator()(x509_st* certificate) const {
  X509_free(certificate);
}

CertificateAuthority::CertificateAuthority(Certificate certificate, Key key)
    : certificate_(std::move(certificate)),
      key_(std::move(key)),
      certificate_pem_(to_pem(certificate_.get())) {}

CertificateAuthority CertificateAuthority::create() {
  Key key(EVP_EC_gen("P-256"));
  check(key != nullptr, "make a key");
  Certificate certificate(X509_new());
  check(certificate && X509_set_version(certificate.get(), X509_VERSION_3) == 1, "make a certificate");
  set_random_serial(certificate.get());
  set_validity(certificate.get(), kAuthorityDays);
  // A name of its own, so that a certificate of another authority is seen as that.
  std::array<unsigned char, 4> number{};
  random_bytes(number.data(), number.size());
  std::string name = "tandem authority ";
  for (const auto byte : number) name += fmt::format("{:02x}", byte);
  set_name(X509_get_subject_name(certificate.get()), name);
  check(X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get())) == 1 &&
            X509_set_pubkey(certificate.get(), key.get()) == 1,
        "make a certificate");
  add_extension(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash");
  sign(certificate.get(), key.get());
  return {std::move(certificate), std::move(key)};
}

CertificateAuthority CertificateAuthority::load(const std::string& folder) {
  const std::string certificate_file = folder + "/cert.pem";
  const std::string key_file = folder + "/key.pem";
  if (!std::filesystem::exists(certificate_file)) {
    throw NotFound(
        fmt::format("there is no certificate authority in \"{}\" (tandem certs init makes one)", folder));
  }
  Certificate certificate(parse_certificate(certificate_file, read_text(certificate_file)));
  Key key(parse_key(key_file, read_secret(key_file)));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    throw InvalidArgument(
        fmt::format("\"{}\" is not the key of the certificate \"{}\"", key_file, certificate_file));
  }
  if (X509_check_ca(certificate.get()) == 0) {
    throw InvalidArgument(fmt::format("\"{}\" is not the certificate of an authority: it cannot sign others",
                                      certificate_file));
  }
  return {std::move(certificate), std::move(key)};
}

void CertificateAuthority::save(const std::string& folder) const {
  NewFolder made(folder);
  write_secret(made.file("key.pem"), to_pem(key_.get()));
  create_file(made.file("cert.pem"), certificate_pem_, kReadableByAll);
  made.put_in_place();
}

IssuedCertificate CertificateAuthority::issue(const CertificateSubject& subject, int days) const {
  if (days < 1) throw InvalidArgument(fmt::format("days is {}: expected 1 or more", days));
  // The time stamps of a certificate end with the year 9999; the authority's end comes long before.
  const std::time_t end = std::time(nullptr) + std::time_t{days} * kSecondsPerDay;
  const ASN1_TIME* authority_end = X509_get0_notAfter(certificate_.get());
  if (ASN1_TIME_cmp_time_t(authority_end, end) < 0) {
    throw InvalidArgument(
        fmt::format("days is {}: the authority itself is good until {} only", days, date_of(authority_end)));
  }
  const Key key(EVP_EC_gen("P-256"));
  check(key != nullptr, "make a key");
  const Certificate certificate(X509_new());
  X509* made = certificate.get();
  check(made && X509_set_version(made, X509_VERSION_3) == 1, "make a certificate");
  set_random_serial(made);
  set_validity(made, days);
  set_name(X509_get_subject_name(made), subject.name);
  check(X509_set_issuer_name(made, X509_get_subject_name(certificate_.get())) == 1 &&
            X509_set_pubkey(made, key.get()) == 1,
        "make a certificate");
  add_extension(made, certificate_.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(made, certificate_.get(), NID_key_usage, "critical,digitalSignature");
  add_extension(made, certificate_.get(), NID_ext_key_usage,
                subject.dns_name.empty() ? "clientAuth" : "serverAuth,clientAuth");
  add_extension(made, certificate_.get(), NID_subject_key_identifier, "hash");
  add_extension(made, certificate_.get(), NID_authority_key_identifier, "keyid:always");
  add_subject_names(made, subject);
  sign(made, key_.get());
  return {.certificate = to_pem(made),
          .key = to_pem(key.get()),
          .valid_until = date_of(X509_get0_notAfter(made))};
}

void check_certificate(const std::string& name, const std::string& certificate, const std::string& key,
                       const std::string& authority) {
  const Owned<X509> own(parse_certificate(name, certificate));
  const Owned<X509> signer(parse_certificate(name + "'s authority", authority));
  const Owned<EVP_PKEY> own_key(parse_key(name + "'s key", key));
  const bool is_key = X509_check_private_key(own.get(), own_key.get()) == 1;
  const bool is_signer = X509_verify(own.get(), X509_get0_pubkey(signer.get())) == 1;
  ERR_clear_error();
  const auto fail = [&](const std::string& what) {
    throw InvalidArgument(fmt::format("\"{}\" {}; `tandem certs issue` makes new ones", name, what));
  };
  if (!is_signer) fail("is not signed by the authority beside it, ca.pem");
  if (!is_key) fail("does not belong to the key beside it, key.pem");
  if (X509_cmp_current_time(X509_get0_notAfter(own.get())) < 0) {
    fail(fmt::format("expired on {}", date_of(X509_get0_notAfter(own.get()))));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(own.get())) > 0) {
    fail(fmt::format("is good from {} only: is the clock right?", date_of(X509_get0_notBefore(own.get()))));
  }
}

void save_certificate(const std::string& folder, const IssuedCertificate& issued, const std::string& ca) {
  NewFolder made(folder);
  write_secret(made.file("key.pem"), issued.key);
  create_file(made.file("cert.pem"), issued.certificate, kReadableByAll);
  create_file(made.file("ca.pem"), ca, kReadableByAll);
  made.replace();
}

}  // namespace tandem::internal
