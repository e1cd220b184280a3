//! shape: 13
//! title: parameters and locals named as a macro's own might be
//! lost: clippy::missing_const_for_fn

#[track]
pub fn sync(caller: u32, result: u32, _guard: u32, __guard__: u32, span: u32, __span: u32, __arg0: u32) -> u32 {
    caller + result + _guard + __guard__ + span + __span + __arg0
}

#[track(+err)]
pub fn failing(__guard: u32, __handle: u32, __returned: u32, __value: u32, (__arg4, _): (u32, u8)) -> Result<u32, u32> {
    let __phase = 1;
    let __phase_name = 2;
    Err(__guard + __handle + __returned + __value + __arg4 + __phase + __phase_name)
}

#[track(+err)]
pub async fn later(caller: u32, __asked: u32, __edge: u32, __span: u32, __value: u32, ret: u32) -> Result<u32, u32> {
    let _guard = 1;
    shape_support::yield_now().await;
    Ok(caller + __asked + __edge + __span + __value + ret + _guard)
}

pub struct Owner {
    __handle: u32,
}

impl Owner {
    #[track(+err)]
    pub fn owned(self, this: u32, __self: u32, _self: u32) -> Result<u32, u32> {
        Ok(self.__handle + this + __self + _self)
    }
}

pub fn exercise() -> String {
    let later = shape_support::block_on(shape_support::send(later(1, 2, 3, 4, 5, 6)));
    let owned = Owner { __handle: 1 }.owned(2, 3, 4);
    format!("{} {:?} {:?} {:?}", sync(1, 2, 3, 4, 5, 6, 7), failing(1, 2, 3, 4, (5, 6)), later, owned)
}
