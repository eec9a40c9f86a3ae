//! S14: names.

use super::Factory;
use super::tools::{enter, faulty_session, fence_of, get, is_empty, key, ms, open, session, view, wait_for};
use crate::lease::{Answer, Key, Leave, MAX_KEY_BYTES, SessionId, Store, Token, Was};

/// Names that some engine would take for syntax, for each other, or for too long.
fn good() -> Vec<String> {
    let fixed = [
        "a",
        "A",
        " a",
        "a ",
        "a b",
        "a  b",
        " ",
        "}x",
        "{x}",
        "{x",
        "x",
        "{}",
        ":",
        "::",
        "a:b",
        "a:b:c",
        "%",
        "%%",
        "%41",
        "_",
        "a_",
        "a%",
        "'",
        "''",
        "\"",
        "\\",
        "\\n",
        "`",
        "?",
        "*",
        "[a]",
        "(a)",
        "$1",
        "$x",
        "#",
        "&",
        "|",
        ";",
        "--",
        "/*",
        "a' OR '1'='1",
        "/",
        "//",
        ".",
        "..",
        "../x",
        "-",
        "+",
        "~",
        "0",
        "00",
        "null",
        "é",
        "e\u{301}",
        "ß",
        "ss",
        "K",
        "\u{a0}",
        "\u{200b}",
        "\u{feff}",
        "\u{202e}",
        "日本語",
        "🦀",
        "🦀🦀",
        "👩‍👩‍👧",
        "\u{10ffff}",
    ];
    let long = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(MAX_KEY_BYTES - 1)));
    fixed.into_iter().map(str::to_owned).chain(long).chain(["🦀".repeat(MAX_KEY_BYTES / 4)]).collect()
}

/// **S14** Keys with spaces, braces (`}x` and `{x}` too), colons, `%`, quotes, 512 bytes, emoji: held apart from each other; newline, empty, 513 bytes:
/// refused with a clear error.
///
/// Both at the raw store and through a session.
pub fn case_s14_keys_are_kept_apart_or_refused(factory: &dyn Factory) {
    let store = open(factory);
    raw(&*store);
    assert!(is_empty(&*store));
    through_a_session(factory, &*store);
    wait_for("everything to be gone", || is_empty(&*store));
    refused(factory);
}

fn raw(store: &dyn Store) {
    let names = good();
    let id = SessionId::random().expect("random bytes");
    let tokens: Vec<Token> = names.iter().map(|_| Token::random().expect("random bytes")).collect();
    for (name, token) in names.iter().zip(&tokens) {
        let answer = pollster::block_on(store.enter(&key(name), enter(*token, id, ms(60_000), name)));
        assert!(matches!(answer, Ok(Answer::Held(_))), "{name:?} is held by nobody: {answer:?}");
    }
    for name in &names {
        let now = view(store, name);
        assert_eq!((now.key.as_str(), now.holders.len()), (name.as_str(), 1));
        assert_eq!(&now.holders[0].owner.name, name);
    }
    listed(store, &names);
    for (name, token) in names.iter().zip(&tokens) {
        // A token of another key is nothing here.
        let other = key(if name == "a" { "A" } else { "a" });
        let left = pollster::block_on(store.leave(&other, Leave { token: Token::random().expect("random bytes"), settled: true }));
        assert_eq!(left.expect("the store answers").was, Was::Gone);
        let left = pollster::block_on(store.leave(&key(name), Leave { token: *token, settled: true }));
        assert_eq!(left.expect("the store answers").was, Was::Held, "{name:?}");
    }
}

/// Every start of a name lists exactly the names that start so, in order.
fn listed(store: &dyn Store, names: &[String]) {
    let starts = names.iter().filter_map(|name| name.chars().next().map(String::from));
    let whole = names.iter().cloned();
    for prefix in starts.chain(whole).chain([String::new(), "none such".to_owned()]) {
        let mut right: Vec<&str> = names.iter().map(String::as_str).filter(|name| name.starts_with(&prefix)).collect();
        right.sort_unstable();
        let listed = pollster::block_on(store.list(&prefix)).expect("the store answers");
        assert_eq!(listed.iter().map(|view| view.key.as_str()).collect::<Vec<_>>(), right, "names that start with {prefix:?}");
    }
}

fn through_a_session(factory: &dyn Factory, store: &dyn Store) {
    let (locks, others) = (session(factory), session(factory));
    let names = good();
    let leases: Vec<_> = names.iter().map(|name| get(locks.try_lock(name))).collect();
    for (name, lease) in names.iter().zip(&leases) {
        assert_eq!(lease.key().as_str(), name);
        assert_eq!(fence_of(store, name), Some(lease.fence()), "{name:?}");
        assert!(others.try_lock(name).blocking().expect_err("it is held").is_busy(), "{name:?}");
    }
    // Released one by one: the others stay.
    let mut left = names.len();
    for lease in leases {
        lease.release_blocking().expect("the store answers");
        left -= 1;
        assert_eq!(pollster::block_on(store.list("")).expect("the store answers").len(), left);
    }
}

fn refused(factory: &dyn Factory) {
    let (faulty, locks) = faulty_session(factory);
    let too_long = "x".repeat(MAX_KEY_BYTES + 1);
    let too_many = format!("{}é", "x".repeat(MAX_KEY_BYTES - 1));
    for name in ["", "a\nb", "\n", "a\r", "a\0b", "a\tb", "\u{7f}", "\u{85}", "\u{1b}[31m", &too_long, &too_many] {
        let errors = [
            Key::new(name).expect_err("it is no key"),
            locks.lock(name).blocking().expect_err("it is no key"),
            pollster::block_on(locks.inspect(name)).expect_err("it is no key"),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(error.is_invalid() && text.starts_with("a lock's name"), "{name:?}: {text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }
    assert_eq!(faulty.counts().enters, 0, "nothing was sent");
}
