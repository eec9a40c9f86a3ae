//! Redis by TLS. `ci/services` starts a server that wants a certificate of its clients, and whose own is signed by an authority that no system knows.
#![cfg(feature = "redis")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::time::{Duration, Instant};

use heirlock::{Error, Kind, Locks};
use pollster::block_on;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name}: run the tests by ci/test, or by ci/services"))
}

/// The address, and the files of the authority, the certificate and its key.
fn server() -> (String, [String; 3]) {
    let url = variable("HEIRLOCK_TEST_REDIS_TLS");
    let (address, parameters) = url.split_once('?').unwrap();
    let file = |name| parameters.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap().to_owned();
    (address.to_owned(), [file("ca"), file("cert"), file("key")])
}

/// The error of a connection that must fail, in time.
fn refused(url: &str) -> Error {
    let since = Instant::now();
    let error = block_on(Locks::connect(url)).map(|locks| locks.url()).unwrap_err();
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}: {}", since.elapsed(), error.chain());
    error
}

#[test]
fn the_address_that_is_shown_leads_there_again_but_for_the_password() {
    let (address, [ca, cert, key]) = server();
    let locks = block_on(Locks::connect(&format!("{address}?prefix=a%26b/&ca={ca}&cert={cert}&key={key}"))).unwrap();
    let (_, host) = address.rsplit_once('@').unwrap();
    assert_eq!(locks.url(), format!("rediss://***@{host}?prefix=a%26b/&ca={ca}&cert={cert}&key={key}"));
    let lease = locks.lock("k").no_wait().blocking().unwrap();
    assert!(lease.is_valid());
}

#[test]
fn who_cannot_trust_or_is_not_trusted_is_told_what_to_give() {
    let (address, [ca, cert, key]) = server();
    let error = refused(&format!("{address}?cert={cert}&key={key}"));
    assert!(error.is_invalid() && error.chain().contains("?ca="), "{}", error.chain());
    let error = refused(&format!("{address}?ca={ca}"));
    assert!(error.is_invalid() && error.chain().contains("?cert="), "{}", error.chain());
    // The name in the certificate is not the one that was asked for: the address has another.
    let error = refused(&format!("{}?ca={ca}&cert={cert}&key={key}", address.replace("127.0.0.1", "127.0.0.2")));
    assert!(error.chain().contains("127.0.0.2"), "{}", error.chain());
}

#[test]
fn files_that_are_none_are_named() {
    let (address, [ca, cert, key]) = server();
    let folder = tempfile::tempdir().unwrap();
    let junk = folder.path().join("junk.pem");
    std::fs::write(&junk, "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n").unwrap();
    let junk = junk.display();
    for parameters in [
        format!("ca=/nowhere/ca.pem&cert={cert}&key={key}"),
        format!("ca={junk}&cert={cert}&key={key}"),
        format!("ca={ca}&cert={junk}&key={key}"),
        format!("ca={ca}&cert={cert}&key={junk}"),
        format!("ca={ca}&cert={cert}"),
        format!("ca={ca}&key={key}"),
    ] {
        let error = refused(&format!("{address}?{parameters}"));
        assert!(error.is_invalid(), "{parameters}: {}", error.chain());
    }
    let error = refused(&format!("{address}?ca=/nowhere/ca.pem"));
    assert!(error.chain().contains("/nowhere/ca.pem"), "{}", error.chain());
    // Whoever names certificates believes to be protected.
    assert!(refused(&format!("{}?ca={ca}", variable("HEIRLOCK_TEST_REDIS"))).is_invalid());
}

#[test]
fn one_side_speaks_tls_and_the_other_does_not() {
    let (address, _) = server();
    let plain = refused(&address.replace("rediss://", "redis://"));
    assert_eq!(plain.kind(), Kind::Unreachable, "{}", plain.chain());
    let secret = refused(&variable("HEIRLOCK_TEST_REDIS").replace("redis://", "rediss://"));
    assert_eq!(secret.kind(), Kind::Unreachable, "{}", secret.chain());
}

/// What the system trusts is trusted, with nothing to be set up: here, by the variable that stands for the system's file.
#[test]
fn the_systems_authorities_are_trusted() {
    let (address, [ca, cert, key]) = server();
    let url = format!("{address}?cert={cert}&key={key}");
    if std::env::var_os("HEIRLOCK_TEST_INSIDE").is_some() {
        let locks = block_on(Locks::connect(&url)).unwrap();
        assert!(locks.lock("system").blocking().unwrap().is_valid());
        return;
    }
    let mut inside = Command::new(std::env::current_exe().unwrap());
    inside.args(["--exact", "the_systems_authorities_are_trusted"]).env("HEIRLOCK_TEST_INSIDE", "1").env("SSL_CERT_FILE", ca);
    let output = inside.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
