//! Requests to a hub: addresses, answers and retries.
//!
//! The requests are made here and not by hf-hub's own client, because that one drops the headers
//! of a refusal (so a gated repository looks like a wrong token, and `Retry-After` is not
//! honoured), appends to a partial file whatever answers a request for its rest, and checks no
//! hash. The places of its cache are used, so that other tools find what is fetched here.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use hf_hub::{Cache, Repo, RepoType};
use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderMap, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use super::super::is_plain_name;
use super::refusal::{Failure, Unfinished};

/// The largest list of files that is read, in bytes.
const LARGEST_LISTING: u64 = 64 << 20;

/// The hub whose files are fetched if `HF_ENDPOINT` names no other.
const HUB: &str = "https://huggingface.co";

/// A repository at a revision.
#[derive(Clone, Copy)]
pub(super) struct Repository<'a> {
    pub(super) kind: RepoType,
    /// `ORGANISATION/NAME`.
    pub(super) name: &'a str,
    /// A commit, a branch or a tag.
    pub(super) revision: &'a str,
}

impl<'a> Repository<'a> {
    pub(super) fn at(self, revision: &'a str) -> Self {
        Self { revision, ..self }
    }

    /// The address below the hub's own.
    fn address(&self) -> String {
        match self.kind {
            RepoType::Model => self.name.to_owned(),
            RepoType::Dataset => format!("datasets/{}", self.name),
            RepoType::Space => format!("spaces/{}", self.name),
        }
    }

    fn api(&self) -> String {
        let kind = match self.kind {
            RepoType::Model => "models",
            RepoType::Dataset => "datasets",
            RepoType::Space => "spaces",
        };
        format!("api/{kind}/{}/revision/{}", self.name, self.revision)
    }
}

/// How often and how long to try again.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Tries in a row that bring nothing before giving up.
    pub(super) tries: u32,
    /// The wait before the second try; it doubles from there.
    pub(super) first: Duration,
    /// The longest wait, also where the hub asks for more.
    pub(super) longest: Duration,
}

/// What the hub's list says of a repository.
#[derive(Deserialize)]
pub(super) struct Listing {
    /// The commit that the revision means.
    #[serde(rename = "sha")]
    pub(super) commit: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Listing {
    /// The names of all files, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .siblings
            .iter()
            .map(|file| file.rfilename.clone())
            .collect();
        names.sort();
        names
    }
}

/// What the hub says of one file before it is fetched.
pub(super) struct Remote {
    /// The name of its content in the cache.
    pub(super) etag: String,
    /// Bytes, where told.
    pub(super) size: Option<u64>,
}

impl Remote {
    /// The SHA-256 of the content, which the etag is for all large files.
    pub(super) fn sha256(&self) -> Option<&str> {
        is_sha256(&self.etag).then_some(self.etag.as_str())
    }
}

/// Whether a text has the form of a SHA-256 in lower-case hexadecimal.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// A hub and the cache of its files on this machine.
pub(super) struct Hub {
    endpoint: String,
    pub(super) cache: Cache,
    pub(super) token: Option<String>,
    /// Where the token was read, or where it would be.
    pub(super) token_place: String,
    pub(super) patience: Patience,
    /// Follows no redirect: the answer before the redirect tells etag and size.
    asking: Agent,
    /// Follows redirects, and hands the token to the hub's own host only.
    loading: Agent,
}

impl Hub {
    /// The hub, cache and token that the environment names: `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN`.
    pub(super) fn from_env() -> Self {
        let cache = Cache::from_env();
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let file = cache.token_path().display().to_string();
        let (token, token_place) = match variable("HF_TOKEN") {
            Some(token) => (Some(token), "the variable HF_TOKEN".to_owned()),
            None => (cache.token(), file),
        };
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| HUB.to_owned());
        let patience = Patience {
            tries: 5,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(30),
        };
        Self::new(&endpoint, cache, token, token_place, patience)
    }

    pub(super) fn new(
        endpoint: &str,
        cache: Cache,
        token: Option<String>,
        token_place: String,
        patience: Patience,
    ) -> Self {
        let agent = |redirects| {
            Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(redirects)
                .redirect_auth_headers(RedirectAuthHeaders::SameHost)
                // A compressed answer has another length than the file, and no part of it can
                // be asked for.
                .accept_encoding("identity")
                .user_agent(concat!("axmem/", env!("CARGO_PKG_VERSION")))
                .timeout_connect(Some(Duration::from_secs(30)))
                .timeout_recv_response(Some(Duration::from_mins(1)))
                .timeout_per_read(Some(Duration::from_mins(1)))
                .build()
                .new_agent()
        };
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache,
            token: token.map(|token| token.trim().to_owned()),
            token_place,
            patience,
            asking: agent(0),
            loading: agent(10),
        }
    }

    /// The folder of a repository in the cache.
    pub(super) fn folder(&self, repository: Repository<'_>) -> PathBuf {
        let repo = Repo::new(repository.name.to_owned(), repository.kind);
        let mut folder = self.cache.repo(repo).pointer_path("commit");
        // Up from `snapshots/commit`.
        folder.pop();
        folder.pop();
        folder
    }

    /// The page on which a person sees the repository.
    pub(super) fn page(&self, repository: Repository<'_>) -> String {
        format!("{}/{}", self.endpoint, repository.address())
    }

    /// The commit and files of a repository.
    pub(super) fn list(&self, repository: Repository<'_>) -> std::result::Result<Listing, Failure> {
        let url = format!("{}/{}", self.endpoint, repository.api());
        self.persist(|| {
            let mut answer = self.ask(&self.loading, &url, None, repository, None)?;
            let text = answer
                .body_mut()
                .with_config()
                .limit(LARGEST_LISTING)
                .read_to_vec()
                .map_err(|error| self.lost(&error, "the list of files", false))?;
            let strange = |problem: String| {
                Unfinished::Stop(Failure::Refused(format!(
                    "{url} gives no list of files: {problem}; check that HF_ENDPOINT names a hub"
                )))
            };
            let listing: Listing =
                serde_json::from_slice(&text).map_err(|error| strange(error.to_string()))?;
            if is_plain_name(&listing.commit, "") {
                Ok(listing)
            } else {
                Err(strange(format!("{:?} is no commit", listing.commit)))
            }
        })
    }

    /// Etag and size of a file.
    pub(super) fn look(
        &self,
        repository: Repository<'_>,
        file: &str,
    ) -> std::result::Result<Remote, Failure> {
        let mut url = self.file_url(repository, file);
        // A renamed repository answers with a relative redirect; an absolute one leads to the
        // storage, which knows no etag of the hub.
        for _ in 0..5 {
            let answer = self.persist(|| {
                let request = self.asking.head(&url);
                let answer = self.authorised(request).call();
                self.judge(answer, &url, repository, Some(file))
            })?;
            let headers = answer.headers();
            if answer.status().is_redirection()
                && let Some(path) = relative_redirect(headers)
            {
                url = format!("{}{path}", origin(&url));
                continue;
            }
            return remote(headers, answer.status()).ok_or_else(|| {
                Failure::Refused(format!(
                    "the answer for {file} names no etag by which its content could be kept; \
                     check that HF_ENDPOINT names a hub"
                ))
            });
        }
        Err(Failure::Refused(format!(
            "{} is redirected more than 5 times",
            self.file_url(repository, file)
        )))
    }

    /// One try to open the content of a file from byte `start` on.
    pub(super) fn open(
        &self,
        repository: Repository<'_>,
        file: &str,
        start: u64,
    ) -> std::result::Result<Response<Body>, Unfinished> {
        let url = self.file_url(repository, file);
        self.ask(&self.loading, &url, Some(start), repository, Some(file))
    }

    fn file_url(&self, repository: Repository<'_>, file: &str) -> String {
        // Names of files may hold spaces and the marks that end a path.
        let mut path = String::with_capacity(file.len());
        for byte in file.bytes() {
            if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                path.push('%');
                path.push_str(&crate::files::hexadecimal(&[byte]).to_uppercase());
            }
        }
        format!(
            "{}/{}/resolve/{}/{path}",
            self.endpoint,
            repository.address(),
            repository.revision
        )
    }

    fn authorised<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn ask(
        &self,
        agent: &Agent,
        url: &str,
        start: Option<u64>,
        repository: Repository<'_>,
        file: Option<&str>,
    ) -> std::result::Result<Response<Body>, Unfinished> {
        let mut request = self.authorised(agent.get(url));
        if let Some(start) = start.filter(|&start| start > 0) {
            request = request.header("Range", format!("bytes={start}-"));
        }
        self.judge(request.call(), url, repository, file)
    }

    /// Sorts an answer into a good one, one worth another try, and a refusal.
    fn judge(
        &self,
        answer: std::result::Result<Response<Body>, ureq::Error>,
        url: &str,
        repository: Repository<'_>,
        file: Option<&str>,
    ) -> std::result::Result<Response<Body>, Unfinished> {
        let answer = answer.map_err(|error| self.lost(&error, origin(url), false))?;
        let status = answer.status();
        let good = status.is_success()
            || status.is_redirection()
            || status == StatusCode::RANGE_NOT_SATISFIABLE;
        if good {
            return Ok(answer);
        }
        let problem = self.explain(&answer, repository, file);
        Err(match status.as_u16() {
            // As good as away: a complete cache serves.
            429 | 500 | 502 | 503 | 504 => Unfinished::Again {
                wait: text_of(answer.headers(), "retry-after")
                    .and_then(|seconds| seconds.trim().parse().ok())
                    .map(Duration::from_secs),
                progress: false,
                failure: Failure::Unreachable(problem),
            },
            _ => Unfinished::Stop(Failure::Refused(problem)),
        })
    }

    /// A try that ended without an answer or in the middle of one.
    pub(super) fn lost(&self, error: &ureq::Error, what: &str, progress: bool) -> Unfinished {
        let problem = error.to_string();
        let problem = problem.lines().next().unwrap_or_default();
        Unfinished::Again {
            wait: None,
            progress,
            failure: Failure::Unreachable(format!(
                "no complete answer from {what} ({problem}), tried {} times; check the network \
                 and the variables HF_ENDPOINT and HTTPS_PROXY, then run again: what has arrived \
                 is kept and the rest is fetched",
                self.patience.tries
            )),
        }
    }

    /// Tries until something succeeds, is refused for good, or brings nothing too often.
    pub(super) fn persist<T>(
        &self,
        mut attempt: impl FnMut() -> std::result::Result<T, Unfinished>,
    ) -> std::result::Result<T, Failure> {
        let mut fruitless = 0;
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(Unfinished::Stop(failure)) => return Err(failure),
                Err(Unfinished::Again {
                    wait,
                    progress,
                    failure,
                }) => {
                    fruitless = if progress { 1 } else { fruitless + 1 };
                    if fruitless >= self.patience.tries {
                        return Err(failure);
                    }
                    let doubled = self.patience.first * 2_u32.pow(fruitless.min(10) - 1);
                    thread::sleep(wait.unwrap_or(doubled).min(self.patience.longest));
                }
            }
        }
    }
}

pub(super) fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Scheme, host and port of an address.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..]
        .find('/')
        .map_or(url, |length| &url[..start + length])
}

/// The target of a redirect within the same host.
fn relative_redirect(headers: &HeaderMap) -> Option<String> {
    let target: Uri = text_of(headers, "location")?.parse().ok()?;
    let path = target.path_and_query()?;
    (target.host().is_none() && path.as_str().starts_with('/')).then(|| path.to_string())
}

fn remote(headers: &HeaderMap, status: StatusCode) -> Option<Remote> {
    let etag = text_of(headers, "x-linked-etag").or_else(|| text_of(headers, "etag"))?;
    let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
    // The length of a redirect is that of its own page.
    let length = text_of(headers, "content-length").filter(|_| !status.is_redirection());
    let size = text_of(headers, "x-linked-size").or(length);
    is_plain_name(&etag, "_-").then(|| Remote {
        size: size.and_then(|size| size.parse().ok()),
        etag,
    })
}
