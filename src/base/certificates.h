#pragma once

#include <memory>
#include <string>

struct evp_pkey_st;
struct x509_st;

namespace tandem::internal {

// Whom a certificate speaks for. The URI is what tandem matches against the task a peer claims to be; the DNS
// name, which no name server knows, is there because gRPC's clients check nothing else.
struct CertificateSubject {
  std::string name;      // for people: "worker:1"
  std::string uri;       // "spiffe://tandem/<cluster_id>/worker/1"
  std::string dns_name;  // "worker-1.<cluster_id>.tandem"; empty: the certificate is for clients only
};

// Throw InvalidArgument unless cluster_id is 32 hexadecimal digits (ClusterSpec::id()) and the job is a name
// of lower-case letters, digits and underscores.
CertificateSubject task_subject(const std::string& cluster_id, const std::string& job, int index);
// May stop a run and ask for its state, but is no task.
CertificateSubject operator_subject(const std::string& cluster_id);

// A certificate with its private key, both PEM.
struct IssuedCertificate {
  std::string certificate;
  std::string key;
  std::string valid_until;  // "2027-03-01"
};

// Signs the certificates of a cluster's tasks: EC P-256, SHA-256. Whoever has its key can make himself a
// task.
class CertificateAuthority {
 public:
  // A new one, good for ten years.
  static CertificateAuthority create();

  // From `folder`/cert.pem and key.pem. Throws NotFound if there is none, InvalidArgument if the key can be
  // read by others, does not belong to the certificate, or either is damaged.
  static CertificateAuthority load(const std::string& folder);

  // Makes `folder` with both files, whole or not at all; its parent must exist. Throws InvalidArgument if
  // there is such a folder.
  void save(const std::string& folder) const;

  const std::string& certificate() const { return certificate_pem_; }

  // Throws InvalidArgument unless days is 1 or more and the certificate ends before the authority does.
  IssuedCertificate issue(const CertificateSubject& subject, int days) const;

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
    void operator()(x509_st* certificate) const;
  };
  using Key = std::unique_ptr<evp_pkey_st, Free>;
  using Certificate = std::unique_ptr<x509_st, Free>;

  CertificateAuthority(Certificate certificate, Key key);

  Certificate certificate_;
  Key key_;
  std::string certificate_pem_;
};

// Throws InvalidArgument, beginning with `name`, unless the certificate is good today, signed by the
// authority and has this key. Who is refused for his own certificate is told so here; the other side of a
// connection only hangs up.
void check_certificate(const std::string& name, const std::string& certificate, const std::string& key,
                       const std::string& authority);

// Makes or replaces `folder`, in one step, with cert.pem, key.pem (mode 0600) and ca.pem, the authority's
// certificate. Its parent must exist.
void save_certificate(const std::string& folder, const IssuedCertificate& issued, const std::string& ca);

}  // namespace tandem::internal
