//! The parts that the values of several options have in common.

use crate::text::Text;
use syn::parse::ParseStream;
use syn::{Expr, ExprPath, Ident, LitStr, Path, Token, token};

/// Leaves what is being read: goes to the next comma outside of brackets.
pub(crate) fn skip_to_comma(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<proc_macro2::TokenTree>()?;
    }
    Ok(())
}

/// The `=` of an option that needs a value.
pub(crate) fn equals(word: &Ident, example: &str, input: ParseStream<'_>) -> syn::Result<()> {
    let missing = || Err(syn::Error::new_spanned(word, format!("`{word}` needs {example}")));
    if !input.peek(Token![=]) {
        return missing();
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) { missing() } else { Ok(()) }
}

/// The word of `words` that a path is, written without its quotes.
pub(crate) fn unquoted<'a>(path: &ExprPath, words: &[&'a str]) -> Option<&'a str> {
    words.iter().copied().find(|word| path.path.is_ident(word))
}

/// For a word without its quotes, which rustc would call a value that does not exist.
pub(crate) fn must_be_quoted(path: &ExprPath, option: &Ident, word: &str) -> syn::Error {
    syn::Error::new_spanned(path, format!("`{word}` is written as a text, as in `{option} = \"{word}\"`"))
}

/// The value of an option that takes any expression.
pub(crate) fn value(word: &Ident, example: &str, input: ParseStream<'_>) -> syn::Result<Expr> {
    equals(word, example, input)?;
    input.parse()
}

/// The value of an option that takes a constant text.
pub(crate) fn text(word: &Ident, input: ParseStream<'_>) -> syn::Result<Text> {
    equals(word, &format!("a string, as in `{word} = \"…\"`"), input)?;
    Text::read(word, input)
}

/// The value of `crate`.
pub(crate) fn path(word: &Ident, input: ParseStream<'_>) -> syn::Result<Path> {
    let example = "a path, as in `crate = my_library::memtrack`";
    equals(word, example, input)?;
    if input.peek(LitStr) {
        return Err(input.error(format!("`crate` needs {example}")));
    }
    // A path as in `use`: no generic arguments, and `crate` or `$crate` may stand first.
    input.call(Path::parse_mod_style)
}

/// For an option that is a word alone.
pub(crate) fn refuse_value(word: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
    if input.peek(Token![=]) || input.peek(token::Paren) {
        return Err(syn::Error::new_spanned(word, format!("`{word}` takes no value")));
    }
    Ok(())
}
