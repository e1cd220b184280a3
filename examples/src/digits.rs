//! The UCI handwritten digits: 1797 grey images of 8×8 pixels, with the digit that each one shows.
//!
//! The file is part of the program, so it runs from any folder. `data/README.md` names its source and licence.

use std::io::Read as _;

/// Pixels of one image.
pub const PIXELS: usize = 64;
/// Digits there are to tell apart.
pub const CLASSES: usize = 10;

const FILE: &[u8] = include_bytes!("../data/digits.csv.gz");
/// The brightest pixel in the file.
const BRIGHTEST: u8 = 16;
/// The split is the same in every run, so that accuracies of different seeds can be compared.
const SPLIT_SEED: u64 = 1797;

/// Images and what they show, in host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Digits {
    images: Vec<f32>,
    labels: Vec<u32>,
}

/// What is learnt from and what is not.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// Four fifths, to learn from.
    pub training: Digits,
    /// One fifth, never learnt from.
    pub held_out: Digits,
}

/// Why the file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DigitsError {
    /// The compressed file is damaged.
    #[error("the digits cannot be unpacked: {0}")]
    Unpack(#[from] std::io::Error),
    /// A line is not 64 pixels from 0 to 16 and a digit from 0 to 9.
    #[error("line {line} of the digits is not 64 pixels from 0 to 16 and a digit from 0 to 9, separated by commas")]
    Line {
        /// Counted from 1.
        line: usize,
    },
}

impl Digits {
    /// Unpacks all images; pixels become 0.0 (white) to 1.0 (black).
    ///
    /// # Errors
    ///
    /// [`DigitsError`] when the file is damaged.
    pub fn load() -> Result<Self, DigitsError> {
        let mut text = String::new();
        flate2::read::GzDecoder::new(FILE).read_to_string(&mut text)?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, DigitsError> {
        let mut digits = Self { images: Vec::new(), labels: Vec::new() };
        for (index, line) in text.lines().enumerate() {
            let malformed = || DigitsError::Line { line: index + 1 };
            let numbers: Vec<u8> =
                line.split(',').map(|field| field.trim().parse().map_err(|_| malformed())).collect::<Result<_, _>>()?;
            let Some((label, pixels)) = numbers.split_last() else { return Err(malformed()) };
            if pixels.len() != PIXELS || usize::from(*label) >= CLASSES || pixels.iter().any(|&pixel| pixel > BRIGHTEST)
            {
                return Err(malformed());
            }
            digits.images.extend(pixels.iter().map(|&pixel| f32::from(pixel) / f32::from(BRIGHTEST)));
            digits.labels.push(u32::from(*label));
        }
        Ok(digits)
    }

    /// How many images there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// All images, [`PIXELS`] values each.
    pub fn images(&self) -> &[f32] {
        &self.images
    }

    /// What the images show, 0 to 9.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Copies some images, in the order given.
    ///
    /// # Panics
    ///
    /// When an index is not below [`len`](Self::len).
    pub fn select(&self, indices: &[usize]) -> Self {
        let image = |&index: &usize| &self.images[index * PIXELS..(index + 1) * PIXELS];
        Self {
            images: indices.iter().flat_map(image).copied().collect(),
            labels: indices.iter().map(|&index| self.labels[index]).collect(),
        }
    }

    /// Shuffles and holds a fifth out, in the same way every time.
    pub fn split(&self) -> Split {
        let mut order: Vec<usize> = (0..self.len()).collect();
        fastrand::Rng::with_seed(SPLIT_SEED).shuffle(&mut order);
        let (held_out, training) = order.split_at(self.len() / 5);
        Split { training: self.select(training), held_out: self.select(held_out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_1797_images_of_all_ten_digits() {
        let digits = Digits::load().unwrap();
        assert_eq!(digits.len(), 1797);
        assert_eq!(digits.images().len(), 1797 * PIXELS);
        assert!(digits.images().iter().all(|pixel| (0.0..=1.0).contains(pixel)));
        let of_each = |digit: u32| digits.labels().iter().filter(|&&label| label == digit).count();
        // The counts that the data set's own description gives for this half of it.
        assert_eq!(Vec::from_iter((0..10).map(of_each)), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }

    #[test]
    fn the_split_holds_a_fifth_out_and_loses_no_image() {
        let digits = Digits::load().unwrap();
        let Split { training, held_out } = digits.split();
        assert_eq!((training.len(), held_out.len()), (1438, 359));
        assert_eq!(digits.split().held_out, held_out, "every split is the same");
        let ink = |digits: &Digits| digits.images().iter().map(|&pixel| f64::from(pixel)).sum::<f64>();
        assert_eq!(ink(&training) + ink(&held_out), ink(&digits));
    }

    #[test]
    fn a_damaged_line_is_named() {
        let good = format!("{}7", "16,".repeat(PIXELS));
        assert_eq!(Digits::parse(&good).unwrap().labels(), [7]);
        for bad in ["", "1,2", &good.replace('7', "10"), &good.replacen("16", "17", 1), &good.replacen("16", "x", 1)] {
            let error = Digits::parse(&format!("{good}\n{bad}\n")).unwrap_err();
            assert!(matches!(error, DigitsError::Line { line: 2 }), "{bad}: {error}");
        }
    }
}
