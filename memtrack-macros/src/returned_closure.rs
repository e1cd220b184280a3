//! Closures that a function returns as an `impl Fn…`.
//!
//! Such a closure takes its signature from the return type: rustc knows it where the closure is what the function's own body
//! ends with or what its `return` gives. In another closure, and in an async block, it does not, nor can the type be handed
//! on. So the signature is stated there once more, in the type of a pointer that is wanted of a call which is given the closure.

use crate::early_return::visit_returned;
use crate::function::{Function, in_braces_of};
use crate::prologue::local;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::Parser as _;
use syn::{Block, Expr, PathArguments, ReturnType, Signature, Stmt, TraitBound, Type, TypeImplTrait, TypeParamBound};

/// States the signatures of the closures that the body visibly returns. A body that does not parse is left as it is, for
/// rustc to report.
pub(crate) fn state_signatures(function: &mut Function, private: &TokenStream) {
    let ReturnType::Type(_, output) = &function.signature.output else { return };
    if !any_closure(output, &is_stated_by_dyn) {
        return;
    }
    let Ok(mut statements) = Block::parse_within.parse2(function.body.stream()) else { return };
    for statement in &mut statements {
        visit_returned(statement, &mut |value| state(value, output, private));
    }
    state_in_last(&mut statements, output, private);
    function.body = in_braces_of(&function.body, quote!(#(#statements)*));
}

/// Whether the function returns a closure whose signature no type can state: that of an `impl AsyncFn…`.
pub(crate) fn returns_unstated_closure(signature: &Signature) -> bool {
    let ReturnType::Type(_, output) = &signature.output else { return false };
    any_closure(output, &|bound| !is_stated_by_dyn(bound))
}

/// Where `value` is a closure and `ty` an `impl Fn…`, states the signature; in a tuple, of each part.
fn state(value: &mut Expr, ty: &Type, private: &TokenStream) {
    match (value, ty) {
        (value, Type::Paren(inner)) => state(value, &inner.elem, private),
        (value, Type::Group(inner)) => state(value, &inner.elem, private),
        (Expr::Paren(inner), ty) => state(&mut inner.expr, ty, private),
        (Expr::Group(inner), ty) => state(&mut inner.expr, ty, private),
        (Expr::Block(inner), ty) if inner.label.is_none() => state_in_last(&mut inner.block.stmts, ty, private),
        (Expr::Unsafe(inner), ty) => state_in_last(&mut inner.block.stmts, ty, private),
        (Expr::Tuple(values), Type::Tuple(types)) => {
            values.elems.iter_mut().zip(&types.elems).for_each(|(value, ty)| state(value, ty, private));
        }
        (value @ Expr::Closure(_), Type::ImplTrait(opaque)) => {
            if let Some(bound) = closure_bound(opaque).filter(|bound| is_stated_by_dyn(bound)) {
                // In a block of its own, since lints ask of a call's arguments whether they need be closures.
                let place = local("__closure");
                *value = Expr::Verbatim(quote_spanned! {Span::mixed_site()=>
                    {
                        let mut #place = #private::ReturnedClosure::none();
                        let _: *const (dyn #bound + '_) = #private::ReturnedClosure::state(&mut #place, { #value });
                        #private::ReturnedClosure::take(#place)
                    }
                });
            }
        }
        _ => {}
    }
}

fn state_in_last(statements: &mut [Stmt], ty: &Type, private: &TokenStream) {
    if let Some(Stmt::Expr(last, None)) = statements.last_mut() {
        state(last, ty, private);
    }
}

/// Whether an `impl Trait` with a closure's signature, and such a bound, is in a type where rustc looks for it.
fn any_closure(ty: &Type, is_such: &impl Fn(&TraitBound) -> bool) -> bool {
    match ty {
        Type::Paren(inner) => any_closure(&inner.elem, is_such),
        Type::Group(inner) => any_closure(&inner.elem, is_such),
        Type::Tuple(tuple) => tuple.elems.iter().any(|ty| any_closure(ty, is_such)),
        Type::ImplTrait(opaque) => closure_bound(opaque).is_some_and(is_such),
        _ => false,
    }
}

/// The bound of an `impl Trait` that has a closure's signature.
fn closure_bound(opaque: &TypeImplTrait) -> Option<&TraitBound> {
    opaque.bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => {
            let last = bound.path.segments.last()?;
            matches!(last.arguments, PathArguments::Parenthesized(_)).then_some(bound)
        }
        _ => None,
    })
}

/// Whether the bound's trait can be that of a trait object.
fn is_stated_by_dyn(bound: &TraitBound) -> bool {
    let last = bound.path.segments.last();
    last.is_some_and(|last| ["Fn", "FnMut", "FnOnce"].iter().any(|name| last.ident == name))
}
