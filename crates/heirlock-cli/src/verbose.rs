//! `--verbose`: what the library says, and what is decided here, on stderr.

use tracing::level_filters::LevelFilter;

use crate::stderr::Chatter;

/// From now on, if asked for: once for what is decided, twice for what is done all the time.
pub(crate) fn start(times: u8) {
    let level = match times {
        0 => return,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_ansi(false)
        .with_writer(|| Chatter)
        // If nobody reads stderr, there is nobody to tell.
        .log_internal_errors(false)
        .finish();
    // There is no other: this is done once, first of all.
    let _ = tracing::subscriber::set_global_default(lines);
}
