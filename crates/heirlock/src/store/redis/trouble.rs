//! What the server's errors mean, and what to do.

use ::redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{Error, Kind};

/// The error of a server that does not answer, or not now.
pub(super) fn unreachable(shown: &str, why: &str) -> Error {
    Error::new(Kind::Unreachable, format!("{shown} does not answer: {why}"))
}

/// The error of Sentinels that have never heard of the service.
pub(super) fn no_service(shown: &str) -> Error {
    let cure = "give the name that stands in their files after sentinel monitor";
    Error::new(Kind::Invalid, format!("{shown} names no service that its Sentinels know: {cure}"))
}

/// No error of the driver's shows a password, and the address is without it.
pub(super) fn explain(shown: &str, error: &RedisError) -> Error {
    let told = told(error);
    match error.kind() {
        ErrorKind::AuthenticationFailed => Error::new(Kind::Invalid, format!("{shown} refuses the user or the password: {told}")),
        ErrorKind::Io if told.contains("CertificateRequired") => {
            Error::new(Kind::Invalid, format!("{shown} wants a certificate: give one, and its key, as ?cert=FILE&key=FILE"))
        }
        ErrorKind::Io if told.contains("invalid peer certificate") => {
            let what = "give its authority as ?ca=FILE, and a host that stands in it";
            Error::new(Kind::Invalid, format!("{shown} is not trusted ({told}): {what}"))
        }
        // Of a cluster the driver tells no more than that it reached no node, with the last one's error as text.
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound if ["WRONGPASS", "NOAUTH"].iter().any(|code| told.contains(code)) => {
            Error::new(Kind::Invalid, format!("{shown} refuses the user or the password: {told}"))
        }
        ErrorKind::MasterNameNotFoundBySentinel => unreachable(shown, "the Sentinels name no primary of this service now"),
        ErrorKind::RESP3NotSupported => {
            Error::new(Kind::Incompatible, format!("{shown} speaks no RESP3: 6.2 or a later version is needed"))
        }
        ErrorKind::InvalidClientConfig => Error::new(Kind::Invalid, format!("{shown} cannot be used: {told}")),
        // The driver has followed it as often as it may.
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            unreachable(shown, "its slots are on their way to another node")
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => unreachable(shown, "it is a replica now, and writes nothing"),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown | ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown,
        ) => unreachable(shown, &told),
        ErrorKind::Server(_) | ErrorKind::Extension => match error.code() {
            Some("NOAUTH" | "WRONGPASS") => Error::new(Kind::Invalid, format!("{shown} refuses the user or the password: {told}")),
            Some("NOPERM") => forbidden(shown, &told),
            // What a script is not permitted has had more than one name.
            _ if IN_SCRIPTS.iter().any(|words| told.contains(words)) => forbidden(shown, &told),
            Some("WRONGTYPE") => {
                let what = "has something else under the name of a lock: remove that, or keep locks under another ?prefix=";
                Error::new(Kind::Incompatible, format!("{shown} {what}"))
            }
            Some("OOM") => Error::new(Kind::Storage, format!("{shown} has no memory left: {told}")),
            _ if told.contains("cluster support disabled") => {
                Error::new(Kind::Invalid, format!("{shown} is no cluster: begin it with redis://"))
            }
            _ if told.contains("DB index") => {
                Error::new(Kind::Invalid, format!("{shown} has no such database: give a number below its setting databases"))
            }
            code => Error::new(Kind::Storage, format!("{shown} answers {}: {told}", code.unwrap_or("an error"))),
        },
        _ => unreachable(shown, &told),
    }
}

/// What servers say of a command, key or channel that a script may not touch.
const IN_SCRIPTS: [&str; 2] = ["user executing the script", "ACL failure in script"];

fn forbidden(shown: &str, told: &str) -> Error {
    // Behind that is where in the script.
    let told = told.split(" script: ").next().unwrap_or(told);
    Error::new(Kind::Invalid, format!("{shown} does not permit what locks need: {told}; its user needs the rules of docs/stores.md"))
}

/// In its own words; those of the system, where no server has said anything.
fn told(error: &RedisError) -> String {
    match (error.detail(), std::error::Error::source(error)) {
        // Of a command that they do not know they repeat the arguments: the password, if it is HELLO or AUTH.
        (Some(detail), _) => detail.split(", with args").next().unwrap_or(detail).to_owned(),
        (None, Some(cause)) if error.kind() == ErrorKind::Io => cause.to_string(),
        _ => error.category().to_owned(),
    }
}
