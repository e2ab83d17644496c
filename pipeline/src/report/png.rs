//! Figures as pictures, for papers and slides that take no SVG.
//!
//! The face is compiled in, so that a figure has the same pixels on every machine.

use anyhow::{Context, Result};
use epaint_default_fonts::UBUNTU_LIGHT;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Pixels for each unit of a figure: 960 units printed 17 cm wide come to 290 dots per inch.
const SCALE: f32 = 2.0;

/// Draws an SVG of [`super::chart`].
pub(super) fn of_svg(svg: &str) -> Result<Vec<u8>> {
    let mut options = Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(UBUNTU_LIGHT.to_vec());
    fonts.set_sans_serif_family("Ubuntu");
    let tree = Tree::from_str(svg, &options).context("a figure can't be read back")?;
    let size = tree
        .size()
        .to_int_size()
        .scale_by(SCALE)
        .context("an empty figure")?;
    let mut picture =
        Pixmap::new(size.width(), size.height()).context("a figure without any pixels")?;
    let transform = Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, transform, &mut picture.as_mut());
    picture.encode_png().context("a figure can't be encoded")
}
