//! The report as Markdown, with the figures beside it.

use std::fmt::Write as _;

use super::page::{Block, Page, Span, Table, Text};

/// Renders the page.
pub(super) fn render(page: &Page) -> String {
    let mut markdown = format!("# {}\n\n{}\n", escape(&page.title), text(&page.subtitle));
    for block in &page.blocks {
        push(&mut markdown, block);
    }
    markdown
}

fn push(markdown: &mut String, block: &Block) {
    markdown.push('\n');
    let _ = match block {
        Block::Section(_, title) => writeln!(markdown, "## {}", escape(title)),
        Block::Paragraph(content) => writeln!(markdown, "{}", text(content)),
        Block::Callout(content) => writeln!(markdown, "> {}", text(content)),
        Block::List(items) => items
            .iter()
            .try_for_each(|item| writeln!(markdown, "- {}", text(item))),
        Block::Table(content) => table(markdown, content),
        Block::Figure {
            file,
            alternative,
            caption,
        } => writeln!(
            markdown,
            "![{}]({file})\n\n{}",
            escape(alternative),
            text(caption)
        ),
        Block::Details(summary, blocks) => {
            let opened = writeln!(
                markdown,
                "<details>\n<summary>{}</summary>",
                escape(summary)
            );
            for block in blocks {
                push(markdown, block);
            }
            opened.and_then(|()| writeln!(markdown, "\n</details>"))
        }
        Block::Code(code) => writeln!(markdown, "```text\n{}\n```", code.replace("```", "'''")),
    };
}

fn table(markdown: &mut String, table: &Table) -> std::fmt::Result {
    writeln!(markdown, "{}\n", text(&table.caption))?;
    let header: Vec<String> = table.header.iter().map(|name| escape(name)).collect();
    writeln!(markdown, "| {} |", header.join(" | "))?;
    let rule: Vec<&str> = (0..table.header.len())
        .map(|column| if column < table.names { "---" } else { "---:" })
        .collect();
    writeln!(markdown, "| {} |", rule.join(" | "))?;
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(text).collect();
        writeln!(markdown, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

fn text(text: &Text) -> String {
    let mut markdown = String::new();
    for span in &text.0 {
        let _ = match span {
            Span::Plain(text) | Span::Faint(text) => write!(markdown, "{}", escape(text)),
            Span::Strong(text) | Span::Mark(text) => write!(markdown, "**{}**", escape(text)),
            Span::Code(text) => write!(markdown, "`{}`", text.replace(['`', '\n'], " ")),
        };
    }
    markdown
}

/// One line of text in which nothing is markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '|' => {
                escaped.push('\\');
                escaped.push(character);
            }
            // Brackets alone are text, as in intervals; followed by a parenthesis they are a link.
            '(' if escaped.ends_with(']') => escaped.push_str("\\("),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            other if other.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}
