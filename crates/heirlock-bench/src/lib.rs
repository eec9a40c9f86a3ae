//! Benches beside peers that no test build should have to compile: `benches/redis`. `ci/bench` runs them.
