//! Where a store is: one server, the primary that Sentinels name, or a cluster; from its URL.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::cluster::{ClusterClient, ClusterClientBuilder};
use ::redis::io::tcp::TcpSettings;
use ::redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisError, TlsCertificates, TlsMode,
};

use crate::{Error, Kind, Result};

/// How long a connection to one node of a cluster may take to be made.
const NODE_CONNECT: Duration = Duration::from_secs(1);
/// How often a cluster is asked again for one command that met a node that is away or a slot that has moved, and the milliseconds between.
const RETRIES: (u32, u64, u64) = (8, 20, 500);

/// Which certificates a TLS connection needs besides those of the system.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    pub(super) ca: Option<PathBuf>,
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
}

/// Who asks Sentinels.
#[derive(Clone, Default)]
pub(super) struct SentinelUser {
    pub(super) name: Option<String>,
    pub(super) password: Option<String>,
}

/// A store's address.
#[derive(Clone)]
pub(super) struct Address {
    /// The URL without secrets.
    pub(super) shown: Arc<str>,
    pub(super) form: Form,
}

#[derive(Clone)]
pub(super) enum Form {
    One(Arc<Client>),
    Sentinel(Arc<Sentinels>),
    Cluster(Arc<Nodes>),
}

/// The Sentinels that name the primary of a service.
pub(super) struct Sentinels {
    nodes: Vec<ConnectionAddr>,
    pub(super) service: String,
    /// How to speak to the servers that they name.
    server: ConnectionInfo,
    user: SentinelUser,
    certificates: Option<TlsCertificates>,
}

/// Some nodes of a cluster, by which the others are found.
pub(super) struct Nodes {
    nodes: Vec<ConnectionInfo>,
    certificates: Option<TlsCertificates>,
}

impl Address {
    pub(super) fn parse(url: &str, tls: &Tls, sentinel: &SentinelUser) -> Result<Address> {
        let shown: Arc<str> = crate::redact(url).into();
        let bad = |why: &str| Error::new(Kind::Invalid, format!("{shown} is no Redis URL ({why}): give {}", usage(url)));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no host"))?;
        let (base, kind) = scheme.split_once('+').map_or((scheme, ""), |(base, kind)| (base, kind));
        let certificates = certificates(base, tls, &shown)?;
        let one = |text: &str| -> Result<ConnectionInfo> {
            let info = format!("{base}://{text}").into_connection_info().map_err(|error| bad(error.category()))?;
            let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            Ok(info.set_redis_settings(settings).set_tcp_settings(at_once()))
        };
        let invalid = |error: RedisError| bad(error.detail().unwrap_or_else(|| error.category()));
        if kind != "sentinel" && (sentinel.name.is_some() || sentinel.password.is_some()) {
            return Err(bad("it names no Sentinels, so it needs no user or password for them"));
        }
        let form = match kind {
            "" => {
                let info = one(rest)?;
                Form::One(Arc::new(match certificates {
                    Some(certificates) => Client::build_with_tls(info, certificates).map_err(invalid)?,
                    None => Client::open(info).map_err(invalid)?,
                }))
            }
            "sentinel" => {
                let Place { user, hosts, path } = Place::of(rest);
                let mut path = path.split('/');
                let service = path.next().filter(|service| !service.is_empty()).ok_or_else(|| bad("it names no service"))?;
                let service = crate::connect::decode(service).ok_or_else(|| bad("its service's name is malformed"))?;
                let database = path.next().unwrap_or_default();
                if path.next().is_some() {
                    return Err(bad("it has too many slashes"));
                }
                let nodes =
                    hosts.iter().map(|host| one(&with_port(host, 26379)).map(|info| info.addr().clone())).collect::<Result<Vec<_>>>()?;
                let server = one(&format!("{user}{}/{database}", hosts[0]))?;
                Form::Sentinel(Arc::new(Sentinels { nodes, service, server, user: sentinel.clone(), certificates }))
            }
            "cluster" => {
                let Place { user, hosts, path } = Place::of(rest);
                if !path.is_empty() {
                    return Err(bad("a cluster has no databases"));
                }
                let nodes = hosts.iter().map(|host| one(&format!("{user}{host}"))).collect::<Result<Vec<_>>>()?;
                let nodes = Nodes { nodes, certificates };
                // Built anew for each connection; what is wrong with it is said now.
                nodes.client(Duration::from_secs(1)).map_err(invalid)?;
                Form::Cluster(Arc::new(nodes))
            }
            _ => return Err(bad("there is no such kind")),
        };
        Ok(Address { shown, form })
    }
}

impl Sentinels {
    /// Asks anew each time: what was kept of Sentinels that were asked before may be of connections that hang.
    pub(super) fn client(&self) -> ::redis::RedisResult<SentinelClient> {
        let server = self.server.redis_settings();
        let mut builder = SentinelClientBuilder::new(self.nodes.clone(), &self.service, SentinelServerType::Master)?
            .set_client_to_redis_db(server.db())
            .set_client_to_redis_protocol(ProtocolVersion::RESP3)
            .set_client_to_redis_tcp_settings(at_once());
        if let Some(name) = server.username() {
            builder = builder.set_client_to_redis_username(name);
        }
        if let Some(password) = server.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(name) = &self.user.name {
            builder = builder.set_client_to_sentinel_username(name);
        }
        if let Some(password) = &self.user.password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if matches!(self.server.addr(), ConnectionAddr::TcpTls { .. }) {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure).set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = &self.certificates {
            builder =
                builder.set_client_to_redis_certificates(certificates.clone()).set_client_to_sentinel_certificates(certificates.clone());
        }
        builder.build()
    }
}

impl Nodes {
    /// One for each that is known by its address, in another order each time.
    pub(super) fn each(&self) -> ::redis::RedisResult<Vec<Client>> {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let mut nodes = self.nodes.clone();
        // Not always the same one first: it may be the one that is silent.
        let first = TURN.fetch_add(1, Ordering::Relaxed) % nodes.len();
        nodes.rotate_left(first);
        let open = |info| match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        nodes.into_iter().map(open).collect()
    }

    pub(super) fn client(&self, answer: Duration) -> ::redis::RedisResult<ClusterClient> {
        let (retries, shortest, longest) = RETRIES;
        let mut builder = ClusterClientBuilder::new(self.nodes.clone())
            .use_protocol(ProtocolVersion::RESP3)
            .tcp_settings(at_once())
            .connection_timeout(NODE_CONNECT)
            .response_timeout(answer)
            .overall_response_timeout(Some(answer))
            .retries(retries)
            .min_retry_wait(shortest)
            .max_retry_wait(longest);
        if let Some(certificates) = &self.certificates {
            builder = builder.certs(certificates.clone());
        }
        builder.build()
    }
}

/// A request does not wait until what was sent before it is acknowledged, which the server does with its answer.
fn at_once() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// `USER:PASSWORD@` or nothing, the hosts, and what follows the slash after them.
struct Place<'u> {
    user: &'u str,
    hosts: Vec<&'u str>,
    path: &'u str,
}

impl<'u> Place<'u> {
    fn of(rest: &'u str) -> Place<'u> {
        let (user, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        Place { user, hosts: hosts.split(',').collect(), path }
    }
}

fn with_port(host: &str, port: u16) -> String {
    // The colons of an IPv6 address stand in brackets.
    let has_one = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    if has_one { host.to_owned() } else { format!("{host}:{port}") }
}

fn usage(url: &str) -> &'static str {
    if url.contains("+sentinel:") {
        "redis+sentinel://[USER[:PASSWORD]@]SENTINEL[:PORT][,SENTINEL...]/SERVICE[/DATABASE]"
    } else if url.contains("+cluster:") {
        "redis+cluster://[USER[:PASSWORD]@]NODE[:PORT][,NODE...]"
    } else {
        "redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]"
    }
}

/// Those that the connection needs besides the system's. Without TLS none may be named.
fn certificates(scheme: &str, tls: &Tls, shown: &str) -> Result<Option<TlsCertificates>> {
    if scheme != "rediss" {
        return match (&tls.ca, &tls.certificate) {
            (None, None) => Ok(None),
            _ => Err(Error::new(Kind::Invalid, format!("{shown} is without TLS and needs no certificates: begin it with rediss"))),
        };
    }
    // The driver leaves the choice to the process, which is made here unless the program has made its own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = |path: &Path| {
        std::fs::read(path)
            .map_err(|cause| Error::new(Kind::Invalid, format!("cannot read the certificate or key {}", path.display())).because(cause))
    };
    let root_cert = tls.ca.as_deref().map(read).transpose()?;
    let client_tls = match &tls.certificate {
        Some((certificate, key)) => Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? }),
        None => None,
    };
    Ok((root_cert.is_some() || client_tls.is_some()).then_some(TlsCertificates { client_tls, root_cert }))
}
