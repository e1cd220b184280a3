//! The options `args` and `skip`: arguments as fields of the span.

use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use crate::lists::ArgumentNames;
use crate::prologue::{SpanField, at};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote_spanned};
use syn::ext::IdentExt as _;
use syn::visit_mut::VisitMut;
use syn::{FnArg, Ident, LitStr, PatIdent, Signature};

/// Reports the names that are no arguments.
pub(crate) fn check(args: &Args, function: &Function, errors: &mut Errors) {
    let known = names(&function.signature);
    let has_receiver = function.signature.receiver().is_some();
    for name in args.arguments.named() {
        if known.contains(name) || (name == "self" && has_receiver) {
            continue;
        }
        let list = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let known = match known.len() {
            0 => "it has none".to_owned(),
            1 => format!("its argument is {list}"),
            _ => format!("its arguments are {list}"),
        };
        errors.push_at(name, format!("`{name}` is no argument of this function; {known}"));
    }
}

/// The arguments that are recorded, as fields of the span. One that `fields` names as well is left to it.
pub(crate) fn fields(args: &Args, function: &Function, private: &TokenStream) -> Vec<SpanField> {
    let recorded = match &args.arguments {
        ArgumentNames::None => Vec::new(),
        ArgumentNames::Named(names) => names.clone(),
        ArgumentNames::AllBut(skipped) => {
            names(&function.signature).into_iter().filter(|name| !skipped.contains(name)).collect()
        }
    };
    let receiver = function.signature.receiver().map(|receiver| format_ident!("self", span = receiver.self_token.span));
    let taken = |name: &Ident| args.fields.iter().any(|field| name.unraw() == field.key());
    let recorded = recorded.iter().filter(|name| !taken(name));
    recorded
        .map(|name| {
            let key = LitStr::new(&name.unraw().to_string(), name.span());
            // The receiver's own token: inside `macro_rules!` another `self` would be another variable.
            let variable = receiver.as_ref().filter(|_| *name == "self").unwrap_or(name);
            let place = Span::mixed_site().located_at(name.span());
            let private = at(private, place);
            let value = quote_spanned! {place=>
                #private::Recorded::as_value(&(&&&#private::Argument(&#variable)).__memtrack_kind().recorded(&#variable))
            };
            SpanField { name: key.into_token_stream(), value: Some(value) }
        })
        .collect()
}

/// The traits whose methods [`fields`] calls.
pub(crate) fn uses(args: &Args, private: &TokenStream) -> TokenStream {
    if let ArgumentNames::None = args.arguments {
        return TokenStream::new();
    }
    quote_spanned! {Span::mixed_site()=>
        #[allow(unused_imports)]
        use #private::{DebugKind as _, SignedKind as _, ValueKind as _};
    }
}

/// The variables that the parameters bind.
fn names(signature: &Signature) -> Vec<Ident> {
    struct Names(Vec<Ident>);
    impl VisitMut for Names {
        fn visit_pat_ident_mut(&mut self, pattern: &mut PatIdent) {
            self.0.push(pattern.ident.clone());
            if let Some((_, inner)) = &mut pattern.subpat {
                self.visit_pat_mut(inner);
            }
        }
        fn visit_expr_mut(&mut self, _: &mut syn::Expr) {}
    }
    let mut names = Names(Vec::new());
    for input in &signature.inputs {
        // What a condition may remove is no field, since a span's fields are the same in every build.
        if let FnArg::Typed(parameter) = input
            && !parameter.attrs.iter().any(|attribute| attribute.path().is_ident("cfg"))
        {
            names.visit_pat_mut(&mut parameter.pat.clone());
        }
    }
    names.0
}
