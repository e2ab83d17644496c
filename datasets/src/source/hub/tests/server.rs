//! A small hub on this machine that answers as the test says.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::files;

/// The commit at which the test repository stands.
pub(super) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request as it arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: HashMap<String, String>,
}

/// What the server does with a request instead of giving the file.
pub(super) enum Trick {
    /// A status, with headers.
    Status(u16, Vec<(&'static str, String)>),
    /// Sends this many bytes of the content, then closes the connection.
    Cut(usize),
    /// Gives the whole file whatever part is asked for.
    Whole,
}

type Tricks = dyn Fn(&Request, usize) -> Option<Trick> + Send + Sync;

struct State {
    files: BTreeMap<String, Vec<u8>>,
    /// Hashes told in place of the right ones.
    false_hashes: HashMap<String, String>,
    tricks: Box<Tricks>,
    requests: Mutex<Vec<Request>>,
}

pub(super) struct Server {
    pub(super) endpoint: String,
    state: Arc<State>,
}

impl Server {
    /// Serves `files` as `org/name`, on a thread that lives as long as the test's process.
    /// `tricks` sees a request and how many with the same method and path came before.
    pub(super) fn start(
        files: &[(&str, &[u8])],
        false_hashes: &[(&str, &str)],
        tricks: impl Fn(&Request, usize) -> Option<Trick> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            files: files
                .iter()
                .map(|&(name, bytes)| (name.to_owned(), bytes.to_vec()))
                .collect(),
            false_hashes: false_hashes
                .iter()
                .map(|&(name, hash)| (name.to_owned(), hash.to_owned()))
                .collect(),
            tricks: Box::new(tricks),
            requests: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away is no concern of the server.
                let _ = shared.answer(&stream);
            }
        });
        Self { endpoint, state }
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }

    /// The requests for the content of a file.
    pub(super) fn loads(&self, file: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.method == "GET" && request.path.ends_with(file));
        requests
    }
}

impl State {
    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().unwrap_or(Ok(String::new()))?;
        let mut words = first.split(' ').map(str::to_owned);
        let mut request = Request {
            method: words.next().unwrap_or_default(),
            path: words.next().unwrap_or_default(),
            headers: HashMap::new(),
        };
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            request
                .headers
                .insert(name.to_lowercase(), value.to_owned());
        }
        let before = {
            let mut requests = self.requests.lock().unwrap();
            let before = requests
                .iter()
                .filter(|other| other.method == request.method && other.path == request.path)
                .count();
            requests.push(request.clone());
            before
        };
        let trick = (self.tricks)(&request, before);
        let is_listing = request.path.starts_with("/api/")
            && ["main", COMMIT].iter().any(|revision| {
                request
                    .path
                    .ends_with(&format!("/org/name/revision/{revision}"))
            });
        match trick {
            Some(Trick::Status(status, headers)) => send(stream, status, &headers, b"", None),
            _ if is_listing => send(stream, 200, &[], self.listing().as_bytes(), None),
            trick => self.file(stream, &request, trick.as_ref()),
        }
    }

    fn listing(&self) -> String {
        let files: Vec<_> = self
            .files
            .keys()
            .map(|name| serde_json::json!({"rfilename": name}))
            .collect();
        serde_json::json!({"sha": COMMIT, "siblings": files}).to_string()
    }

    fn file(
        &self,
        stream: &TcpStream,
        request: &Request,
        trick: Option<&Trick>,
    ) -> std::io::Result<()> {
        // A query stands for nothing here; data sets lie in a folder of their own.
        let path = request.path.split('?').next().unwrap_or_default();
        let path = path.strip_prefix("/datasets").unwrap_or(path);
        let name = path.strip_prefix(&format!("/org/name/resolve/{COMMIT}/"));
        let Some((name, content)) = name.and_then(|name| Some((name, self.files.get(name)?)))
        else {
            return send(
                stream,
                404,
                &[("x-error-code", "EntryNotFound".into())],
                b"",
                None,
            );
        };
        let is_large = [".safetensors", ".gguf"]
            .iter()
            .any(|ending| name.ends_with(ending));
        let hash = self
            .false_hashes
            .get(name)
            .cloned()
            .unwrap_or_else(|| files::sha256(content));
        let mut headers = vec![("x-repo-commit", COMMIT.to_owned())];
        if is_large {
            headers.push(("x-linked-etag", format!("\"{hash}\"")));
            headers.push(("x-linked-size", content.len().to_string()));
            headers.push(("etag", "\"of-the-redirect\"".to_owned()));
        } else {
            headers.push(("etag", format!("W/\"{}\"", &hash[..40])));
        }
        if request.method == "HEAD" {
            headers.push(("content-length", content.len().to_string()));
            return send(stream, 200, &headers, b"", Some(0));
        }
        let start = request
            .headers
            .get("range")
            .filter(|_| !matches!(trick, Some(Trick::Whole)))
            .and_then(|range| {
                range
                    .strip_prefix("bytes=")?
                    .strip_suffix('-')?
                    .parse()
                    .ok()
            })
            .unwrap_or(0_usize);
        let cut = match trick {
            Some(Trick::Cut(bytes)) => Some(*bytes),
            _ => None,
        };
        let (status, rest) = match content.get(start..) {
            Some(rest) if start > 0 => (206, rest),
            Some(rest) => (200, rest),
            None => (416, &[][..]),
        };
        let range = format!("bytes {start}-{}/{}", content.len() - 1, content.len());
        headers.push(("content-range", range));
        send(stream, status, &headers, rest, cut)
    }
}

/// Sends an answer, or only the first `cut` bytes of its body.
fn send(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(&'static str, String)],
    body: &[u8],
    cut: Option<usize>,
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Status\r\nconnection: close\r\n");
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    if !headers.iter().any(|(name, _)| *name == "content-length") {
        write!(head, "content-length: {}\r\n", body.len()).unwrap();
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body[..cut.unwrap_or(body.len()).min(body.len())])?;
    stream.flush()
}
