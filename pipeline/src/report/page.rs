//! The report as a list of blocks, before it becomes HTML or Markdown.
//!
//! Owns: the vocabulary in which `content` writes and which `html` and `markdown` render, so that
//! both files say the same thing.

/// A piece of text with one emphasis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Span {
    Plain(String),
    Strong(String),
    Code(String),
    /// Marked as the place where two texts part.
    Mark(String),
    /// Of less weight, such as context.
    Faint(String),
    /// Text from outside, such as a document's id: control characters are shown, not obeyed.
    Source(String),
}

/// Text of one paragraph, cell or caption.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Text(pub Vec<Span>);

impl Text {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn plain(mut self, text: impl Into<String>) -> Self {
        self.0.push(Span::Plain(text.into()));
        self
    }

    pub(crate) fn strong(mut self, text: impl Into<String>) -> Self {
        self.0.push(Span::Strong(text.into()));
        self
    }

    pub(crate) fn code(mut self, text: impl Into<String>) -> Self {
        self.0.push(Span::Code(text.into()));
        self
    }

    pub(crate) fn mark(mut self, text: impl Into<String>) -> Self {
        self.0.push(Span::Mark(text.into()));
        self
    }

    pub(crate) fn faint(mut self, text: impl Into<String>) -> Self {
        self.0.push(Span::Faint(text.into()));
        self
    }

    pub(crate) fn source(mut self, text: impl Into<String>) -> Self {
        self.0.push(Span::Source(text.into()));
        self
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new().plain(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new().plain(text)
    }
}

/// A table; columns named in `numeric` are set flush right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub caption: Text,
    pub header: Vec<String>,
    /// Number of leading columns that hold names, the rest hold numbers.
    pub names: usize,
    pub rows: Vec<Vec<Text>>,
}

impl Table {
    /// An empty table with its caption and columns, of which the first `names` hold names.
    pub(crate) fn new(caption: impl Into<Text>, names: usize, header: &[&str]) -> Self {
        Self {
            caption: caption.into(),
            header: header.iter().map(ToString::to_string).collect(),
            names,
            rows: Vec::new(),
        }
    }

    /// Adds a row of plain cells.
    pub(crate) fn row<T: Into<Text>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

/// A text from outside, laid beside others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passage {
    pub label: &'static str,
    /// Of less weight than the others.
    pub faint: bool,
    /// Whether the text begins earlier than what is shown, or goes on after it.
    pub cut: (bool, bool),
    /// The text, up to where it parts from the others.
    pub same: String,
    /// The text from there on; `None` where it does not part.
    pub rest: Option<String>,
}

/// Texts side by side, such as what stands in a document and what a model wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    pub title: Text,
    /// Names and values that belong to the texts.
    pub facts: Vec<(&'static str, Text)>,
    pub passages: Vec<Passage>,
}

/// One block of the report.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// Opens a section: anchor and title.
    Section(&'static str, &'static str),
    Paragraph(Text),
    /// A paragraph that must not be missed.
    Callout(Text),
    List(Vec<Text>),
    Table(Table),
    Comparison(Comparison),
    /// A figure by its file name, with the text for readers who can't see it.
    Figure {
        file: &'static str,
        alternative: String,
        caption: Text,
    },
    /// Folded until asked for: title and blocks.
    Details(String, Vec<Block>),
    Code(String),
}

/// The whole report.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub title: String,
    pub subtitle: Text,
    pub blocks: Vec<Block>,
}
