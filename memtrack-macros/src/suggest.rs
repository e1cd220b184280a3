//! "Did you mean": the known word nearest to an unknown one.

/// The candidate nearest to `word`, if it is near enough to be a likely slip: one edit for each three letters, where
/// swapping two neighbours counts as one, or letters too many at its end.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .iter()
        .map(|candidate| (edits(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= allowed || word.starts_with(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters to insert, remove, replace or swap with their neighbour to turn `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    // Three rows of the usual table: a swap looks two rows back.
    let mut two_back: Vec<usize> = Vec::new();
    let mut back: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replace = back[j] + usize::from(a[i] != b[j]);
            let mut best = replace.min(back[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(two_back[j - 1] + 1);
            }
            row.push(best);
        }
        two_back = std::mem::replace(&mut back, row);
    }
    back[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[&str] = &["name", "phase", "device", "fields", "level", "target", "crate", "err"];

    #[test]
    fn slips_find_their_word() {
        assert_eq!(nearest("phse", WORDS), Some("phase"));
        assert_eq!(nearest("pahse", WORDS), Some("phase"));
        assert_eq!(nearest("devices", WORDS), Some("device"));
        assert_eq!(nearest("nmae", WORDS), Some("name"));
        assert_eq!(nearest("error", WORDS), Some("err"));
    }

    #[test]
    fn unrelated_words_find_nothing() {
        assert_eq!(nearest("budget", WORDS), None);
        assert_eq!(nearest("x", WORDS), None);
    }

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        assert_eq!(edits("pahse", "phase"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", "abc"), 0);
    }
}
