//! What a hub's refusals mean and what to do about them.

use std::time::Duration;

use ureq::Body;
use ureq::http::Response;

use super::client::{Hub, Repository, text_of};
use crate::error::Error;

/// Why the hub gave nothing. The sentences name place and remedy.
#[derive(Debug)]
pub(super) enum Failure {
    /// It could not be reached, or the connection was lost.
    Unreachable(String),
    /// It answered, but not with what was asked for.
    Refused(String),
    /// Something on this machine, or a file that is not what the hub says.
    Here(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Here(error)
    }
}

impl Failure {
    /// The error of fetching `source`.
    pub(super) fn of(self, source: &str) -> Error {
        match self {
            Self::Unreachable(message) | Self::Refused(message) => Error::Fetch {
                source_name: source.to_owned(),
                message,
            },
            Self::Here(error) => error,
        }
    }
}

/// The end of one try that did not succeed.
pub(super) enum Unfinished {
    /// Worth another try.
    Again {
        /// The wait that the hub asks for.
        wait: Option<Duration>,
        /// Whether this try brought something all the same.
        progress: bool,
        /// What to report if there is no further try.
        failure: Failure,
    },
    /// Not worth another.
    Stop(Failure),
}

impl From<Error> for Unfinished {
    fn from(error: Error) -> Self {
        Self::Stop(error.into())
    }
}

impl Hub {
    /// The sentence for an answer that gives nothing; it never holds the token.
    pub(super) fn explain(
        &self,
        answer: &Response<Body>,
        repository: Repository<'_>,
        file: Option<&str>,
    ) -> String {
        let page = self.page(repository);
        let (name, revision) = (repository.name, repository.revision);
        let status = answer.status().as_u16();
        let code = text_of(answer.headers(), "x-error-code").unwrap_or_default();
        let login = "run `huggingface-cli login`, or set HF_TOKEN";
        let token = match &self.token {
            Some(_) => format!("the token from {} is not accepted for it", self.token_place),
            None => format!("no token was found in HF_TOKEN or {}", self.token_place),
        };
        match (status, code, file) {
            (_, "GatedRepo", _) | (403, ..) => format!(
                "access to {name} is restricted ({status}): accept its licence at {page} with \
                 your account, then {login} (a token of limited rights must allow gated \
                 repositories); {token}"
            ),
            (401, ..) => format!(
                "the hub asks who you are (401), because {name} is private or does not exist: \
                 {token}; check the name, then {login}"
            ),
            (404, "RevisionNotFound", _) => format!(
                "{name} has no revision {revision} (404); take a commit from {page}/commits/main"
            ),
            (404, _, Some(file)) if code != "RepoNotFound" => format!(
                "{name} has no file {file} at revision {revision} (404); its files are listed at \
                 {page}/tree/{revision}"
            ),
            (404, ..) => format!(
                "there is no repository {name} with a revision {revision} (404); check the \
                 spelling at {page}, and that your token may see it if it is private"
            ),
            (429, ..) => format!(
                "the hub limits the rate of requests (429) and was asked {} times; wait some \
                 minutes and run again, or {login}: requests with a token have a higher limit",
                self.patience.tries
            ),
            (500.., ..) => format!(
                "the hub has a problem of its own ({status}) and was asked {} times; run again \
                 later: what has arrived is kept",
                self.patience.tries
            ),
            _ => format!("the hub answers with status {status}; see {page}"),
        }
    }
}
