//! The flags of `svc up --public`, and their checked values.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use clap::Args;

use super::dns::{NameServers, RootServers};
use super::records::ChallengeRecords;
use crate::failure::Failure;
use crate::prompt;

/// The flags of a public server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Public server")]
pub(crate) struct PublicArgs {
    /// Run a public server with this host name, on the ports 443, 80, 53, 3478 and 5349, with
    /// certificates from an authority
    #[arg(
        long,
        value_name = "HOST",
        requires = "email",
        conflicts_with = "community"
    )]
    pub(crate) public: Option<String>,

    /// Mail address of the first administrator and of the account at the authority
    #[arg(long, value_name = "ADDRESS", requires = "public")]
    email: Option<String>,

    /// You have read the authority's terms of service, and agree
    #[arg(long, requires = "public")]
    agree_terms: bool,

    /// Use the test directory of Let's Encrypt, whose certificates no browser trusts
    #[arg(long, requires = "public", conflicts_with = "acme_directory")]
    staging: bool,

    /// Directory of another authority (ACME). Default: Let's Encrypt
    #[arg(long, value_name = "URL", requires = "public")]
    acme_directory: Option<String>,

    /// CA certificates (PEM) of the directory and of its certificates, instead of the system's
    #[arg(long, value_name = "FILE", requires = "acme_directory")]
    acme_ca: Option<PathBuf>,

    /// Profile of the certificates, one of the authority's directory: with `shortlived` those of
    /// Let's Encrypt are valid for six days
    #[arg(long, value_name = "NAME", requires = "public")]
    acme_profile: Option<String>,

    /// Program that publishes the records of challenges, instead of this server
    #[arg(long, value_name = "PATH", requires = "public", conflicts_with_all = ["dns_update", "dns_zone"])]
    dns_program: Option<PathBuf>,

    /// Name server that receives the records of challenges (RFC 2136), instead of this server
    #[arg(long, value_name = "SERVER", requires_all = ["public", "dns_key"], conflicts_with = "dns_zone")]
    dns_update: Option<String>,

    /// File with the key (TSIG) for --dns-update
    #[arg(long, value_name = "FILE", requires = "dns_update")]
    dns_key: Option<PathBuf>,

    /// Seconds until every name server has a record of --dns-program or --dns-update
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "public",
        default_value_t = 30
    )]
    dns_propagation: u32,

    /// Zone that is delegated to this server and answers challenges, for DNS providers that accept
    /// no NS records with an underscore
    #[arg(long, value_name = "ZONE", requires = "public")]
    dns_zone: Option<String>,

    /// Port of the own name server
    #[arg(long, value_name = "PORT", requires = "public", default_value_t = 53)]
    dns_port: u16,

    /// Public address of this server, if it is behind a NAT or has several (repeatable)
    #[arg(long, value_name = "ADDRESS", requires = "public")]
    public_address: Vec<IpAddr>,

    /// Address on which the ports for visitors listen. Default: all
    #[arg(long, value_name = "ADDRESS", requires = "public")]
    listen_address: Option<IpAddr>,

    /// Name server to ask for the records, instead of the system's and those of the zone
    #[arg(long, value_name = "ADDRESS", requires = "public")]
    resolver: Option<String>,

    /// Root server of a closed network, where the checks of custom domains start (repeatable).
    /// Name servers may then have private addresses
    #[arg(long, value_name = "ADDRESS", requires = "public")]
    dns_root: Vec<String>,

    /// Wait for missing records also without a terminal
    #[arg(long, requires = "public")]
    wait: bool,

    /// Start without a check of the records
    #[arg(long, requires = "public")]
    skip_dns_check: bool,
}

/// The checked flags.
#[derive(Debug)]
pub(super) struct PublicOptions {
    /// The engine's host, in lower case.
    pub(super) host: String,
    pub(super) email: String,
    pub(super) authority: Authority,
    pub(super) dns: DnsWay,
    /// Seconds until every name server has a record of a program or an update.
    pub(super) dns_propagation: u32,
    pub(super) addresses: ServerAddresses,
    pub(super) name_servers: NameServers,
    /// The root of a closed network.
    pub(super) root_servers: Option<RootServers>,
    pub(super) is_waiting: bool,
    pub(super) is_unchecked: bool,
}

/// The authority that issues the certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) directory: String,
    /// CA certificates of the directory and of its certificates.
    pub(super) ca_file: Option<PathBuf>,
    /// Profile of the certificates; `None`: the authority's default.
    pub(super) profile: Option<String>,
    /// True if no browser trusts its certificates.
    pub(super) is_staging: bool,
}

/// The way to publish records of `dns-01`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DnsWay {
    /// The engine answers itself on this port, maybe for a zone of its own.
    Responder { port: u16, zone: Option<String> },
    /// A program.
    Program(PathBuf),
    /// Updates of another server, with the key in a file.
    Update { server: String, key_file: PathBuf },
}

/// The addresses of this server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerAddresses {
    /// Addresses in DNS.
    pub(super) public: Vec<IpAddr>,
    /// Those of them that a socket of this machine can be bound to; without a NAT it is all.
    pub(super) local: Vec<IpAddr>,
    /// Address of the ports for visitors.
    pub(super) listen: IpAddr,
}

impl PublicArgs {
    /// The host that makes this server public.
    pub(crate) fn host(&self) -> Option<&str> {
        self.public.as_deref()
    }

    /// Checks the flags, and asks for the consent to the terms of service.
    pub(super) fn check(&self, host: &str) -> Result<PublicOptions, Failure> {
        let directory = self.acme_directory.as_deref();
        let host = host_name(host, directory.is_some())?;
        let email = email(self.email.as_deref().unwrap_or_default())?;
        let authority = Authority {
            directory: match directory {
                Some(directory) => directory.to_owned(),
                None if self.staging => STAGING.to_owned(),
                None => LETS_ENCRYPT.to_owned(),
            },
            ca_file: self.acme_ca.as_deref().map(absolute).transpose()?,
            profile: self.acme_profile.clone(),
            is_staging: self.staging,
        };
        let addresses = ServerAddresses::find(&self.public_address, self.listen_address)?;
        let options = PublicOptions {
            host,
            email,
            dns: self.dns()?,
            dns_propagation: self.dns_propagation,
            addresses,
            name_servers: NameServers::new(self.resolver.as_deref())?,
            root_servers: RootServers::new(&self.dns_root)?,
            is_waiting: self.wait || prompt::is_possible(),
            is_unchecked: self.skip_dns_check,
            authority,
        };
        options.authority.consent(self.agree_terms)?;
        Ok(options)
    }

    fn dns(&self) -> Result<DnsWay, Failure> {
        Ok(match (&self.dns_program, &self.dns_update) {
            (Some(program), _) => DnsWay::Program(absolute(program)?),
            (None, Some(server)) => DnsWay::Update {
                server: server.clone(),
                key_file: absolute(self.dns_key.as_deref().unwrap_or(Path::new("")))?,
            },
            (None, None) => DnsWay::Responder {
                port: self.dns_port,
                zone: match &self.dns_zone {
                    Some(zone) => Some(host_name(zone, true)?),
                    None => None,
                },
            },
        })
    }
}

impl Authority {
    /// The authority's name in CAA records.
    pub(super) fn caa_name(&self) -> Option<&'static str> {
        let is_known = [LETS_ENCRYPT, STAGING].contains(&self.directory.as_str());
        is_known.then_some("letsencrypt.org")
    }

    /// Asks for the consent, unless it was given.
    fn consent(&self, is_given: bool) -> Result<(), Failure> {
        if is_given {
            return Ok(());
        }
        let terms = match self.caa_name() {
            Some(_) => "of Let's Encrypt (https://letsencrypt.org/repository/)".to_owned(),
            None => format!("of the authority at {}", self.directory),
        };
        let question = format!("Do you agree to the terms of service {terms}?");
        if prompt::is_possible() && prompt::confirm(&question)? {
            return Ok(());
        }
        let message = format!("the terms of service {terms} have not been accepted");
        Err(Failure::usage(message)
            .named("terms_not_agreed")
            .hint("read them, and accept them with the option --agree-terms"))
    }
}

impl DnsWay {
    /// The records that it needs.
    pub(super) fn records(&self) -> ChallengeRecords {
        match self {
            Self::Responder { zone: None, .. } => ChallengeRecords::Delegation,
            Self::Responder {
                zone: Some(zone), ..
            } => ChallengeRecords::Alias(zone.clone()),
            Self::Program(_) | Self::Update { .. } => ChallengeRecords::Elsewhere,
        }
    }
}

impl ServerAddresses {
    /// The given addresses, or else those of the default routes.
    fn find(given: &[IpAddr], listen: Option<IpAddr>) -> Result<Self, Failure> {
        let own = own_addresses();
        let public = if given.is_empty() {
            let public = own.iter().copied().filter(|ip| !is_private(*ip));
            public.collect()
        } else {
            given.to_vec()
        };
        if public.is_empty() {
            let own: Vec<_> = own.iter().map(IpAddr::to_string).collect();
            let message = match own.as_slice() {
                [] => "this machine has no network".to_owned(),
                own => format!(
                    "this machine has only private addresses: {}",
                    own.join(", ")
                ),
            };
            return Err(Failure::usage(message)
                .named("no_public_address")
                .hint("give the address at which the internet reaches it with --public-address"));
        }
        let local = public.iter().copied().filter(|ip| is_local(*ip));
        let found = Self {
            local: local.collect(),
            listen: listen.unwrap_or_else(all_addresses),
            public,
        };
        if found.exact().is_empty() {
            let message = "this machine has none of the addresses of --public-address, and a NAT \
                           is supported only for IPv4";
            return Err(Failure::usage(message)
                .named("no_public_address")
                .hint("give an address of this machine, or the IPv4 address of its NAT"));
        }
        Ok(found)
    }

    /// The public address of IPv4 that only a NAT has. Addresses of IPv6 are often not translated
    /// on the same machine.
    pub(super) fn behind_nat(&self) -> Option<IpAddr> {
        if self.local.iter().any(IpAddr::is_ipv4) {
            return None;
        }
        self.public.iter().copied().find(IpAddr::is_ipv4)
    }

    /// The addresses of listeners whose responses must leave from the address of the request:
    /// behind a NAT, all of IPv4.
    pub(super) fn exact(&self) -> Vec<IpAddr> {
        let mut found = self.local.clone();
        if self.behind_nat().is_some() {
            found.push(Ipv4Addr::UNSPECIFIED.into());
        }
        found
    }

    /// An address of this machine that reaches a listener on [`exact`](Self::exact).
    pub(super) fn own_address(&self) -> IpAddr {
        let first = self.local.first().copied();
        first.unwrap_or(Ipv4Addr::LOCALHOST.into())
    }

    /// Addresses of the own name server. Behind a NAT it is that of the default route: a stub
    /// resolver often has port 53 of a loopback address.
    pub(super) fn name_server(&self) -> Vec<IpAddr> {
        let mut found = self.local.clone();
        if self.behind_nat().is_some() {
            found.extend(own_addresses().into_iter().filter(IpAddr::is_ipv4));
        }
        found
    }
}

/// All addresses of both families, or of IPv4 on a system without IPv6.
fn all_addresses() -> IpAddr {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    match UdpSocket::bind(any) {
        Ok(_bound) => any.ip(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// The source addresses of the default routes. Nothing is sent.
fn own_addresses() -> Vec<IpAddr> {
    let route = |own: IpAddr, to: IpAddr| -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((own, 0))?;
        socket.connect((to, DISCARD_PORT))?;
        Ok(socket.local_addr()?.ip())
    };
    let v4 = route(Ipv4Addr::UNSPECIFIED.into(), ROUTED_V4.into());
    let v6 = route(Ipv6Addr::UNSPECIFIED.into(), ROUTED_V6.into());
    let found = [v4, v6].into_iter().flatten();
    found.filter(|ip| !ip.is_unspecified()).collect()
}

/// True if a socket can have this address.
fn is_local(ip: IpAddr) -> bool {
    match UdpSocket::bind((ip, 0)) {
        Ok(_bound) => true,
        Err(error) => error.kind() != ErrorKind::AddrNotAvailable,
    }
}

/// True if the internet cannot reach the address.
fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            // 100.64.0.0/10 is shared by the customers of a provider (RFC 6598).
            let is_shared = matches!(ip.octets(), [100, 64..=127, ..]);
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_shared
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// A host name with a certificate from the authority, in lower case.
fn host_name(given: &str, is_private_authority: bool) -> Result<String, Failure> {
    let name = given.trim_end_matches('.').to_ascii_lowercase();
    let refused = |reason: &str, hint: &str| {
        Err(Failure::usage(format!("`{given}` {reason}"))
            .named("bad_host")
            .hint(hint))
    };
    if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return refused(
            "is an address, and certificates are for names",
            "give a name whose DNS records you can change, such as engine.example.com",
        );
    }
    if !daemon::config::values::is_dns_name(&name) || name.len() > MAX_HOST_BYTES {
        return refused(
            "is not a host name",
            "give a name without scheme and port, such as engine.example.com; an internationalised \
             name has the form xn--…",
        );
    }
    let is_localhost = name == "localhost" || name.ends_with(".localhost");
    if is_localhost && !is_private_authority {
        return refused(
            "is this machine, and no public authority issues certificates for it",
            "`svc up` without --public starts everything on this machine",
        );
    }
    if !name.contains('.') {
        return refused(
            "has only one label",
            "give a name below a domain of yours, such as engine.example.com",
        );
    }
    Ok(name)
}

fn email(given: &str) -> Result<String, Failure> {
    let is_address = given
        .split_once('@')
        .is_some_and(|(user, host)| !user.is_empty() && host.contains('.') && !host.contains('@'));
    if is_address && given.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(given.to_owned());
    }
    Err(
        Failure::usage(format!("--email `{given}` is not an email address"))
            .hint("give an address such as admin@example.com"),
    )
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    super::super::absolute(path)
}

/// Longest host: the names of tunnels and challenges have room below it.
const MAX_HOST_BYTES: usize = 180;
/// The discard service. No packet is sent there.
const DISCARD_PORT: u16 = 9;
/// Addresses for documentation (RFC 5737, RFC 3849), which use the default route.
const ROUTED_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ROUTED_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
const STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

#[cfg(test)]
mod tests;
