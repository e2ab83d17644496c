//! The weights of a run: an artefact with a checkpoint (of the stages `weights`, `warmup` and `train`), or a checkpoint itself.
//! The tokenizer is looked for among the artefacts that it was made from.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use axmem_datasets::files;
use axmem_datasets::tokenizer::Tokenizer;

use crate::exit::Failure;
use crate::plan::Stage;
use crate::store::{Manifest, Store};
use crate::weights::{CHECKPOINT, REFERENCE};

/// What makes a folder a complete artefact.
const MANIFEST: &str = "manifest.json";
/// What makes a folder a complete checkpoint.
const INDEX: &str = "index.json";
/// In an artefact of the stage `tokens`.
const TOKENIZER: &str = "tokenizer.json";

/// Where the weights of a run are.
pub struct Run {
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// The complete artefact that holds the checkpoint, if it is in one.
    artefact: Option<(PathBuf, Manifest)>,
}

impl Run {
    /// Whether a path is that of a run, not of a published model.
    pub fn is_at(path: &Path) -> bool {
        let checkpoint = path.join(CHECKPOINT);
        path.join(MANIFEST).is_file() || checkpoint.is_dir() || path.join(INDEX).is_file()
    }

    /// Finds the weights in an artefact, or in a checkpoint.
    ///
    /// # Errors
    /// A folder without a complete checkpoint.
    pub fn find(path: &Path) -> Result<Self> {
        if path.is_file() {
            return Err(Failure::usage(format!(
                "{} is a file, and RUN is a folder; for an experiment file, `axmem train` prints the folder of \
                 each arm and trial",
                path.display()
            )));
        }
        // With all its parents, also if it is the folder that the command runs in.
        let folder = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        if folder.join(INDEX).is_file() {
            let artefact = match folder.parent() {
                Some(parent) if folder.ends_with(CHECKPOINT) => artefact(parent)?,
                _ => None,
            };
            return Ok(Self {
                checkpoint: folder,
                artefact,
            });
        }
        let checkpoint = folder.join(CHECKPOINT);
        let artefact = artefact(&folder)?;
        if !checkpoint.is_dir() && !folder.join(REFERENCE).is_file() {
            return Err(Failure::model(format!(
                "{} holds no checkpoint; name an artefact of the stages weights, warmup or train, such as \
                 runs/train-v1/KEY, or a checkpoint",
                path.display()
            )));
        }
        if artefact.is_none() {
            return Err(Failure::model(format!(
                "{} has no {MANIFEST}: the stage that makes it is not done; run it to its end, or name the \
                 checkpoint {} itself",
                path.display(),
                checkpoint.display()
            )));
        }
        Ok(Self {
            checkpoint,
            artefact,
        })
    }

    /// What the run is, such as `train goldfish 0`, or the name of its folder.
    pub fn name(&self) -> String {
        if let Some((_, manifest)) = &self.artefact {
            return manifest.subject.clone();
        }
        let name = self.checkpoint.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The artefact, if it refers to the files of a published model instead of holding weights.
    pub fn reference(&self) -> Option<&Path> {
        let (folder, _) = self.artefact.as_ref()?;
        folder.join(REFERENCE).is_file().then_some(folder)
    }

    /// The tokenizer of the study, if the artefacts that the run was made from are still in its store.
    ///
    /// # Errors
    /// A damaged artefact.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>> {
        self.tokens()?
            .map(|(folder, manifest)| checked_tokenizer(&folder, &manifest))
            .transpose()
    }

    /// Whether the study puts a beginning-of-sequence id before every document, if that is still known.
    ///
    /// # Errors
    /// A damaged artefact.
    pub fn bos(&self) -> Result<Option<bool>> {
        let tokens = self.tokens()?;
        let policy = tokens
            .as_ref()
            .and_then(|(_, manifest)| manifest.settings.pointer("/documents/bos")?.as_str());
        Ok(policy.map(|policy| policy == "always"))
    }

    /// The artefact of the stage `tokens` among those that the run was made from.
    fn tokens(&self) -> Result<Option<(PathBuf, Manifest)>> {
        let Some((folder, manifest)) = &self.artefact else {
            return Ok(None);
        };
        let Some(root) = folder.parent().and_then(Path::parent) else {
            return Ok(None);
        };
        let store = Store::new(root);
        let mut seen = HashSet::new();
        let mut open = vec![manifest.clone()];
        while let Some(manifest) = open.pop() {
            for (name, key) in manifest.inputs {
                let Some(stage) = Stage::ALL.into_iter().find(|stage| stage.name() == name) else {
                    continue;
                };
                let folder = store.folder(&name, stage.version(), &key);
                if !seen.insert(folder.clone()) {
                    continue;
                }
                match artefact(&folder)? {
                    Some(tokens) if stage == Stage::Tokens => return Ok(Some(tokens)),
                    Some((_, input)) => open.push(input),
                    None => {}
                }
            }
        }
        Ok(None)
    }
}

/// The tokenizer of an artefact of the stage `tokens`.
fn checked_tokenizer(folder: &Path, manifest: &Manifest) -> Result<Tokenizer> {
    let path = folder.join(TOKENIZER);
    let tokenizer = Tokenizer::from_file(&path)?;
    let recorded = manifest.files.get(TOKENIZER);
    if recorded.is_none_or(|record| record.sha256 != tokenizer.hash()) {
        return Err(Failure::data(format!(
            "{} has another content than when it was made; remove the folder {} to make it again",
            path.display(),
            folder.display()
        )));
    }
    Ok(tokenizer)
}

/// A folder and its manifest, if it is a complete artefact.
fn artefact(folder: &Path) -> Result<Option<(PathBuf, Manifest)>> {
    let path = folder.join(MANIFEST);
    if !path.exists() {
        return Ok(None);
    }
    let manifest = serde_json::from_str(&files::read_to_string(&path)?)
        .map_err(|error| {
            Failure::data(format!(
                "{} is no record of a stage of a study ({error}); name an artefact of weights, warmup or train",
                path.display()
            ))
        })?;
    Ok(Some((folder.to_path_buf(), manifest)))
}
