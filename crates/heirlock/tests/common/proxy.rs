//! A TCP proxy between a store and its server, that loses, delays and cuts as networks do: what a store's own connection makes of it is the test.
//!
//! It knows of Redis only how a request is recognised, by a word in it, and what a hint looks like.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than anything that goes well.
const FOR_EVER: Duration = Duration::from_secs(60);
/// How every hint begins on the wire: something pushed, of three parts, the first of which says that it is a message of a channel.
const HINT: &[u8] = b">3\r\n$7\r\nmessage\r\n";

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It never arrives, and the connection is cut.
    Request,
    /// It arrives and is answered; the answer is lost, and the connection is cut.
    Reply,
    /// It arrives; nothing comes back over this connection from then on, which stays open.
    Silence,
    /// The connection is cut before it arrives; it does so at [`Proxy::deliver`].
    Late,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Requests,
    Replies,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Connections that were let in.
    pub(crate) connections: usize,
    /// Connections that were cut by a [`Loss`].
    pub(crate) cut: usize,
    /// Hints that were kept back.
    pub(crate) hints: usize,
    /// Late requests that the server has answered.
    pub(crate) late: usize,
}

#[derive(Default)]
struct State {
    links: HashMap<usize, Link>,
    counts: Counts,
    /// All that was asked for, one connection's piece after another's.
    asked: Vec<u8>,
    /// Used up one by one, each by the first request with its word.
    next: VecDeque<(&'static str, Loss)>,
    /// Used when none of those fits.
    always: Vec<(&'static str, Loss)>,
    deaf: bool,
    /// Both ways, each piece.
    delay: Duration,
    may_deliver: bool,
    is_over: bool,
}

/// One connection, as both of its threads and the test know it.
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// Which ways nothing passes any more.
    swallowed: [bool; 2],
    /// The next answer is the last thing that it sees.
    ends_with_reply: bool,
    /// Its client has gone, and its last request is on its way.
    is_late: bool,
}

struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Before the server at this port of 127.0.0.1.
    pub(crate) fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { server: ([127, 0, 0, 1], server).into(), state: Mutex::default(), changed: Condvar::new() });
        let acceptor = Some(accept(listener, &shared));
        Proxy { shared, port, acceptor }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The next requests with this word fail so, one after the other.
    pub(crate) fn next(&self, word: &'static str, losses: impl IntoIterator<Item = Loss>) {
        self.shared.state().next.extend(losses.into_iter().map(|loss| (word, loss)));
    }

    /// All further requests with this word fail so.
    pub(crate) fn always(&self, word: &'static str, loss: Loss) {
        self.shared.state().always.push((word, loss));
    }

    /// Keeps hints back, or lets them through again.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.shared.state().deaf = deaf;
    }

    /// Each piece takes so long each way; what comes meanwhile goes with the next.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Of the connections that there are, nothing passes this way any more, and nobody is told. New ones are as good as any.
    pub(crate) fn swallow(&self, way: Way) {
        for link in self.shared.state().links.values_mut() {
            link.swallowed[way as usize] = true;
        }
    }

    /// Cuts the connections that there are.
    pub(crate) fn cut(&self) {
        for link in self.shared.state().links.values() {
            link.close();
        }
    }

    /// Closes the connections that there are in one direction: the client finds the end of what the server says, and may go on talking.
    pub(crate) fn half_close(&self) {
        for link in self.shared.state().links.values_mut() {
            let _ = link.client.shutdown(Shutdown::Write);
            link.swallowed = [true, true];
        }
    }

    /// Lets nobody in any more: who comes is refused by the system. The connections that there are go on.
    pub(crate) fn refuse(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            self.shared.state().is_over = true;
            // It waits for somebody to come.
            drop(TcpStream::connect(("127.0.0.1", self.port)));
            acceptor.join().unwrap();
            self.shared.state().is_over = false;
        }
    }

    /// Ends all that goes wrong, refusals included. What was swallowed stays so.
    pub(crate) fn heal(&mut self) {
        {
            let mut state = self.shared.state();
            state.next.clear();
            state.always.clear();
            (state.deaf, state.delay) = (false, Duration::ZERO);
        }
        if self.acceptor.is_none() {
            let since = Instant::now();
            let listener = loop {
                match TcpListener::bind(("127.0.0.1", self.port)) {
                    Ok(listener) => break listener,
                    Err(error) => assert!(since.elapsed() < FOR_EVER, "somebody else has the proxy's port: {error}"),
                }
                thread::sleep(Duration::from_millis(5));
            };
            self.acceptor = Some(accept(listener, &self.shared));
        }
    }

    /// What is late arrives now, and from now on at once.
    pub(crate) fn deliver(&self) {
        self.shared.state().may_deliver = true;
        self.shared.changed.notify_all();
    }

    pub(crate) fn counts(&self) -> Counts {
        self.shared.state().counts
    }

    /// How often something with this word was asked for, whatever became of it.
    pub(crate) fn asked(&self, word: &str) -> usize {
        let state = self.shared.state();
        state.asked.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
        self.cut();
        self.deliver();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What is to be done with a request that was just read.
    fn loss(&self, number: usize, piece: &[u8]) -> Option<Loss> {
        let has = |word: &str| piece.windows(word.len()).any(|window| window == word.as_bytes());
        let mut state = self.state();
        state.asked.extend_from_slice(piece);
        let loss = match state.next.iter().position(|(word, _)| has(word)) {
            Some(at) => state.next.remove(at).map(|(_, loss)| loss),
            None => state.always.iter().find(|(word, _)| has(word)).map(|(_, loss)| *loss),
        };
        let link = state.links.get_mut(&number)?;
        match loss {
            Some(Loss::Reply) => link.ends_with_reply = true,
            Some(Loss::Silence) => link.swallowed[Way::Replies as usize] = true,
            Some(Loss::Late) => link.is_late = true,
            Some(Loss::Request) | None => {}
        }
        state.counts.cut += usize::from(matches!(loss, Some(Loss::Request | Loss::Reply | Loss::Late)));
        loss
    }

    /// Whether pieces pass this way.
    fn passes(&self, number: usize, way: Way) -> bool {
        let delay = self.state().delay;
        thread::sleep(delay);
        self.state().links.get(&number).is_some_and(|link| !link.swallowed[way as usize])
    }
}

impl Link {
    fn close(&self) {
        // Whoever is gone already needs not be told.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn accept(listener: TcpListener, shared: &Arc<Shared>) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            if shared.state().is_over {
                return;
            }
            // A server that is away closes what leads to it.
            let Ok(server) = TcpStream::connect(shared.server) else { continue };
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            let copies =
                [client.try_clone().unwrap(), server.try_clone().unwrap(), client.try_clone().unwrap(), server.try_clone().unwrap()];
            let [from_client, to_server, to_client, from_server] = copies;
            let mut state = shared.state();
            state.counts.connections += 1;
            let number = state.counts.connections;
            let link = Link { client, server, swallowed: [false; 2], ends_with_reply: false, is_late: false };
            state.links.insert(number, link);
            drop(state);
            let requests = Arc::clone(&shared);
            thread::spawn(move || pass_requests(&requests, number, from_client, to_server));
            let replies = Arc::clone(&shared);
            thread::spawn(move || pass_replies(&replies, number, from_server, to_client));
        }
    })
}

fn pass_requests(shared: &Shared, number: usize, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let piece = &buffer[..length];
        match shared.loss(number, piece) {
            Some(Loss::Request) => break,
            Some(Loss::Late) => {
                let _ = from.shutdown(Shutdown::Both);
                let mut state = shared.state();
                while !state.may_deliver {
                    state = shared.changed.wait(state).unwrap();
                }
                drop(state);
                // The other thread waits for the answer, and closes what is left.
                let _ = to.write_all(piece);
                return;
            }
            Some(Loss::Reply | Loss::Silence) | None => {}
        }
        if shared.passes(number, Way::Requests) && to.write_all(piece).is_err() {
            break;
        }
    }
    // Unless nobody is to be told that it is over.
    let mut state = shared.state();
    if state.links.get(&number).is_some_and(|link| link.swallowed[Way::Requests as usize]) {
        return;
    }
    if let Some(link) = state.links.remove(&number) {
        link.close();
    }
}

fn pass_replies(shared: &Shared, number: usize, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    let mut kept = Vec::new();
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let mut state = shared.state();
        let Some(link) = state.links.get(&number) else { break };
        if link.is_late {
            state.counts.late += usize::from(state.may_deliver);
            if state.may_deliver {
                break;
            }
            continue;
        }
        if link.ends_with_reply {
            break;
        }
        kept.extend_from_slice(&buffer[..length]);
        let (hints, whole) = if state.deaf { cut_hints(&mut kept) } else { (0, kept.len()) };
        state.counts.hints += hints;
        drop(state);
        if shared.passes(number, Way::Replies) && to.write_all(&kept[..whole]).is_err() {
            break;
        }
        kept.drain(..whole);
    }
    if let Some(link) = shared.state().links.remove(&number) {
        link.close();
    }
}

/// Takes hints out; tells how many, and how much of the rest may pass on now: what may be the start of one waits for its end.
fn cut_hints(bytes: &mut Vec<u8>) -> (usize, usize) {
    let mut hints = 0;
    while let Some(start) = bytes.windows(HINT.len()).position(|window| window == HINT) {
        let Some(end) = after_text(bytes, start + HINT.len()).and_then(|at| after_text(bytes, at)) else { return (hints, start) };
        bytes.drain(start..end);
        hints += 1;
    }
    let begun = (1..HINT.len()).rev().find(|length| bytes.ends_with(&HINT[..*length])).unwrap_or(0);
    (hints, bytes.len() - begun)
}

/// Where a text of the protocol (`$LENGTH`, the bytes, each with a line end) is over that begins here, if all of it is there.
fn after_text(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?.strip_prefix(b"$")?;
    let digits = rest.iter().position(|byte| *byte == b'\r')?;
    let length: usize = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let end = at + 1 + digits + 2 + length + 2;
    (end <= bytes.len()).then_some(end)
}
