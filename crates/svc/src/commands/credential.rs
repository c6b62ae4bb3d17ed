//! `svc credential`: long-lived credentials of the platform. Secrets are shown once.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use api::control::credentials::{
    CREATE, CreateCredential, Credential, CredentialKind, CredentialList, IssuedCredential, LIST,
    REVOKE, ROTATE, RotateCredential,
};
use clap::{Parser, Subcommand};
use jiff::{SignedDuration, Timestamp};
use rcgen::{KeyPair, PKCS_ECDSA_P521_SHA512};
use terminal::private;

use super::token;
use crate::args::time;
use crate::failure::{Code, Failure};
use crate::id_prefix::{self, Candidate};
use crate::output;
use crate::output::Format;
use crate::platform::{PlatformError, Session, SessionFlags};

/// The subcommands of `svc credential`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List your credentials
    List(ListArgs),
    /// Issue a credential
    Create(Box<CreateArgs>),
    /// Replace the secret of a personal access token
    Rotate(Box<RotateArgs>),
    /// Revoke a credential, and every token that was issued from it
    Revoke(RevokeArgs),
}

/// The flags of `svc credential list`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc credential list --output json")]
pub(crate) struct ListArgs {
    /// Page number, starting at 1
    #[arg(long, value_name = "N")]
    page: Option<u32>,

    /// Credentials per page, up to 100
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc credential create`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc credential create laptop --ttl 90d
  svc credential create ci --type app --key-file ci.key --permission tunnels.tunnels.create-delete
  svc credential create door --type mtls --certificate-file door.pem")]
pub(crate) struct CreateArgs {
    /// Name of the credential
    name: String,

    /// The type: pat (personal access token), app (an application with its own key) or mtls (a
    /// client certificate)
    #[arg(long = "type", value_name = "KIND", default_value = "pat", value_parser = kind)]
    kind: CredentialKind,

    /// Permissions that it grants (repeatable). Default: the same permissions as your token
    #[arg(long = "permission", value_name = "PERMISSION")]
    permissions: Vec<String>,

    /// Restrict it: the `resources` boundary, as JSON
    #[arg(long, value_name = "JSON")]
    resources: Option<String>,

    /// Lifetime: 24h, 90d. Default: the lifetime of your own token
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    ttl: Option<Duration>,

    #[command(flatten)]
    material: MaterialArgs,

    /// Output format; as text, only the secret is printed
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The key or certificate of a credential whose secret is not made by the platform.
#[derive(Debug, Parser)]
#[expect(clippy::struct_field_names, reason = "the names of the flags")]
struct MaterialArgs {
    /// app: generate a private key (P-521) and write it to this file; it never leaves this machine
    #[arg(long, value_name = "FILE", conflicts_with = "public_key_file")]
    key_file: Option<PathBuf>,

    /// app: the public key (PEM), if the key pair already exists
    #[arg(long, value_name = "FILE")]
    public_key_file: Option<PathBuf>,

    /// mtls: the client certificate (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "issuer_file")]
    certificate_file: Option<PathBuf>,

    /// mtls: the CA whose client certificates are accepted (PEM)
    #[arg(long, value_name = "FILE")]
    issuer_file: Option<PathBuf>,
}

/// The contents of these files. A generated key is deleted if it is certain that it is not used.
struct Material {
    public_key_pem: Option<String>,
    certificate_pem: Option<String>,
    issuer_pem: Option<String>,
    generated_key: Option<NewKey>,
}

impl MaterialArgs {
    fn has_key(&self) -> bool {
        self.key_file.is_some() || self.public_key_file.is_some()
    }

    fn has_certificate(&self) -> bool {
        self.certificate_file.is_some() || self.issuer_file.is_some()
    }

    /// Reads the given files, and generates the key if one is needed.
    fn material(&self) -> Result<Material, Failure> {
        let certificate_pem = self.certificate_file.as_deref().map(read).transpose()?;
        let issuer_pem = self.issuer_file.as_deref().map(read).transpose()?;
        let given = self.public_key_file.as_deref().map(read).transpose()?;
        let made = self.key_file.as_deref().map(NewKey::write).transpose()?;
        Ok(Material {
            public_key_pem: made.as_ref().map(|key| key.public_pem.clone()).or(given),
            certificate_pem,
            issuer_pem,
            generated_key: made,
        })
    }
}

impl Material {
    /// Deletes the key that was generated for a credential that certainly does not exist. If that
    /// is uncertain, the key stays, because there is no other copy.
    fn into_failure(
        self,
        error: PlatformError,
        to_failure: impl FnOnce(PlatformError) -> Failure,
    ) -> Failure {
        let is_definite = error.is_certainly_not_done();
        let failure = to_failure(error);
        match self.generated_key {
            Some(key) if is_definite => {
                key.discard();
                failure
            }
            Some(key) => failure.hint(format!(
                "it is unknown whether the credential was created; its key is in {}; check `svc \
                 credential list`",
                key.path.display()
            )),
            None => failure,
        }
    }
}

/// The flags of `svc credential rotate`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  svc credential rotate crd_01h455vb4pex5vsknk084sn02q --overlap 1h\n  svc credential rotate crd_01h455vb4pex5vsknk084sn02r --key-file next.key --overlap 1h"
)]
pub(crate) struct RotateArgs {
    /// Id of the credential
    id: String,

    /// Time that the old secret stays valid beside the new one, up to 7d
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    overlap: Option<Duration>,

    #[command(flatten)]
    material: MaterialArgs,

    /// Output format; as text, only the secret is printed
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc credential revoke`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  svc credential revoke crd_01h455vb4pex5vsknk084sn02q\n  svc credential revoke crd_01h455vb4pex5vsknk084sn02q --issued"
)]
pub(crate) struct RevokeArgs {
    /// Id of the credential
    id: String,

    /// Also revoke every credential that was issued with it, and their descendants: for a leaked
    /// credential. Works for a credential that is already revoked
    #[arg(long)]
    issued: bool,

    #[command(flatten)]
    flags: SessionFlags,
}

/// Runs a subcommand.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list(args).await,
        Command::Create(args) => create(*args).await,
        Command::Rotate(args) => rotate(*args).await,
        Command::Revoke(args) => revoke(args).await,
    }
}

async fn list(args: ListArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let call = session.platform.call(LIST, &[]);
    let list: CredentialList = call
        .query("page", args.page)
        .query("pageSize", args.page_size)
        .answer()
        .await?;
    match args.output {
        Format::Json => output::json(&list),
        Format::Text => output::table(
            &["NAME", "TYPE", "CREATED", "EXPIRES", "LAST USED", "ID"],
            &list.credentials.iter().map(row).collect::<Vec<_>>(),
        ),
    }
}

async fn create(args: CreateArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let (has_key, has_certificate) = (args.material.has_key(), args.material.has_certificate());
    let wanted = match args.kind {
        CredentialKind::Pat if has_key || has_certificate => "a pat has no key and no certificate",
        CredentialKind::App if !has_key || has_certificate => {
            "an app needs a key: give --key-file (a new key is written there) or --public-key-file"
        }
        CredentialKind::Mtls if has_key || !has_certificate => {
            "an mtls credential needs a certificate: give --certificate-file or --issuer-file"
        }
        _ => "",
    };
    if !wanted.is_empty() {
        return Err(Failure::usage(wanted).hint("`svc credential create --help` has examples"));
    }
    let permissions = token::permissions(&args.permissions)?;
    let resources = args.resources.as_deref().map(token::resources);
    let resources = resources.transpose()?;
    let expires_at = args.ttl.map(expiry_of).transpose()?;
    // This is the last step, so that no earlier error leaves a key behind.
    let material = args.material.material()?;
    let body = CreateCredential {
        kind: args.kind,
        name: args.name,
        permissions,
        permission_policy: None,
        resources,
        tunnels_grants: None,
        expires_at,
        public_key_pem: material.public_key_pem.clone(),
        certificate_pem: material.certificate_pem.clone(),
        issuer_pem: material.issuer_pem.clone(),
    };
    let call = session.platform.call(CREATE, &[]).body(&body)?;
    let issued: IssuedCredential = match call.answer().await {
        Ok(issued) => issued,
        Err(error) => return Err(material.into_failure(error, Failure::from)),
    };
    show(args.output, &issued)?;
    if let Some(path) = &args.material.key_file
        && args.output == Format::Text
    {
        output::message(&format!(
            "create its tokens with `svc token mint --type app --client {0} --key-file {1}`; `svc \
             forward`, `svc run` and `svc dial` take `--client {0} --key-file {1}` and renew them",
            issued.credential.id,
            path.display()
        ));
    }
    Ok(())
}

async fn rotate(args: RotateArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let overlap = args.overlap.map(|overlap| {
        u32::try_from(overlap.as_secs())
            .map_err(|_too_long| Failure::usage("--overlap is at most 7d"))
    });
    let overlap_seconds = overlap.transpose()?;
    let id = complete_id(&session, &args.id).await?;
    // This is the last step, so that no earlier error leaves a key behind.
    let material = args.material.material()?;
    let body = RotateCredential {
        overlap_seconds,
        public_key_pem: material.public_key_pem.clone(),
        certificate_pem: material.certificate_pem.clone(),
        issuer_pem: material.issuer_pem.clone(),
    };
    let call = session.platform.call(ROTATE, &[&id]).body(&body)?;
    let issued = match call.answer().await {
        Ok(issued) => issued,
        Err(error) => {
            return Err(material.into_failure(error, |error| explain_failure(error, &id)));
        }
    };
    show(args.output, &issued)
}

async fn revoke(args: RevokeArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let id = complete_id(&session, &args.id).await?;
    let call = session.platform.call(REVOKE, &[&id]);
    let call = call.query("issued", args.issued.then_some("true"));
    call.execute()
        .await
        .map_err(|error| explain_failure(error, &id))?;
    output::message(&if args.issued {
        format!("{id} is revoked, with every credential that it issued")
    } else {
        format!("{id} is revoked")
    });
    Ok(())
}

/// The complete id of one of the caller's credentials.
async fn complete_id(session: &Session, id: &str) -> Result<String, Failure> {
    let of_page = |list: CredentialList| {
        let credentials = list.credentials.into_iter();
        credentials
            .map(|credential| Candidate::new(credential.id, credential.name))
            .collect()
    };
    let candidates = session.candidates(LIST, &[], of_page);
    id_prefix::complete("credential", id, candidates).await
}

fn explain_failure(error: PlatformError, id: &str) -> Failure {
    if error.is_not_found() {
        return Failure::new(Code::Failed, format!("credential `{id}` does not exist"))
            .hint("`svc credential list` shows the existing ones");
    }
    error.into()
}

/// Prints only the secret to stdout, so that it can be piped.
fn show(format: Format, issued: &IssuedCredential) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(issued);
    }
    let credential = &issued.credential;
    output::message(&format!(
        "{} ({}), valid until {}",
        credential.name,
        credential.id,
        credential.expires_at.as_deref().unwrap_or("it is revoked")
    ));
    match &issued.token {
        Some(token) => {
            output::message("its token is shown once:");
            output::line(token)
        }
        None => output::line(&credential.id),
    }
}

fn row(credential: &Credential) -> Vec<String> {
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        credential.name.clone(),
        kind_name(credential.kind).to_owned(),
        credential.created_at.clone(),
        optional(&credential.expires_at),
        optional(&credential.last_used_at),
        credential.id.clone(),
    ]
}

/// A private key that was just generated and written.
struct NewKey {
    path: PathBuf,
    public_pem: String,
}

impl NewKey {
    /// Generates a P-521 key (ES512), as the published SDKs use, and writes it to `path`.
    fn write(path: &Path) -> Result<Self, Failure> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512)
            .map_err(|error| Failure::from_error("cannot create a key", error))?;
        let mut file = private::new_file().open(path).map_err(|error| {
            Failure::from_error(&format!("cannot write {}", path.display()), error)
                .hint("--key-file creates a new key and does not replace an existing file")
        })?;
        let key = Self {
            path: path.to_owned(),
            public_pem: pair.public_key_pem(),
        };
        let written = file
            .write_all(pair.serialize_pem().as_bytes())
            .and_then(|()| file.sync_all());
        match written {
            Ok(()) => Ok(key),
            Err(error) => {
                key.discard();
                Err(Failure::from_error(
                    &format!("cannot write {}", path.display()),
                    error,
                ))
            }
        }
    }

    /// Deletes the key. A failure is harmless, because the key is useless without a credential.
    fn discard(self) {
        drop(fs::remove_file(self.path));
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::from_error(&format!("cannot read {}", path.display()), error))
}

fn expiry_of(ttl: Duration) -> Result<String, Failure> {
    let too_long = || Failure::usage("--ttl is too long");
    let ttl = SignedDuration::try_from(ttl).map_err(|_too_long| too_long())?;
    let at = Timestamp::now()
        .checked_add(ttl)
        .map_err(|_too_long| too_long())?;
    Ok(at.to_string())
}

fn kind(text: &str) -> Result<CredentialKind, String> {
    [
        CredentialKind::Pat,
        CredentialKind::App,
        CredentialKind::Mtls,
    ]
    .into_iter()
    .find(|kind| kind_name(*kind) == text)
    .ok_or_else(|| "a kind is pat, app or mtls".to_owned())
}

fn kind_name(kind: CredentialKind) -> &'static str {
    match kind {
        CredentialKind::Pat => "pat",
        CredentialKind::App => "app",
        CredentialKind::Mtls => "mtls",
    }
}
