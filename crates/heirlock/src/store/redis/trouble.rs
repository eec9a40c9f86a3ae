//! What the server's errors mean, and what to do.

use ::redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{Error, Kind};

/// The error of a server that does not answer, or not now.
pub(super) fn unreachable(shown: &str, why: &str) -> Error {
    Error::new(Kind::Unreachable, format!("{shown} does not answer: {why}"))
}

/// No error of the driver's shows a password, and the address is without it.
pub(super) fn explain(shown: &str, error: &RedisError) -> Error {
    let told = error.detail().map_or_else(|| error.category().to_owned(), str::to_owned);
    match error.kind() {
        ErrorKind::AuthenticationFailed => Error::new(Kind::Invalid, format!("{shown} refuses the user or the password: {told}")),
        ErrorKind::MasterNameNotFoundBySentinel => unreachable(shown, "the Sentinels name no primary of this service now"),
        ErrorKind::RESP3NotSupported => {
            Error::new(Kind::Incompatible, format!("{shown} speaks no RESP3: 6.2 or a later version is needed"))
        }
        ErrorKind::InvalidClientConfig => Error::new(Kind::Invalid, format!("{shown} cannot be used: {told}")),
        ErrorKind::Server(ServerErrorKind::ReadOnly) => unreachable(shown, "it is a replica now, and writes nothing"),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown | ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown,
        ) => unreachable(shown, &told),
        ErrorKind::Server(_) | ErrorKind::Extension => match error.code() {
            Some("NOAUTH" | "WRONGPASS") => Error::new(Kind::Invalid, format!("{shown} refuses the user or the password: {told}")),
            Some("NOPERM") => Error::new(Kind::Invalid, format!("{shown} does not permit what locks need: {told}")),
            Some("WRONGTYPE") => Error::new(Kind::Incompatible, format!("{shown} has something else under the name of a lock: {told}")),
            Some("OOM") => Error::new(Kind::Storage, format!("{shown} has no memory left: {told}")),
            _ if told.contains("cluster support disabled") => {
                Error::new(Kind::Invalid, format!("{shown} is no cluster: begin it with redis://"))
            }
            _ if told.contains("DB index") => Error::new(Kind::Invalid, format!("{shown} has no such database: {told}")),
            code => Error::new(Kind::Storage, format!("{shown} answers {}: {told}", code.unwrap_or("an error"))),
        },
        // Of the system's errors the driver tells no details apart, but prints them.
        _ => unreachable(shown, &error.detail().map_or_else(|| error.to_string(), str::to_owned)),
    }
}
