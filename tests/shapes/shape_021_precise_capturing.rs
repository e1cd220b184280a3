//! shape: 21
//! title: `use<…>` in the return type

#[track]
pub fn closure<'a>(x: &'a u32, _y: &u32) -> impl Fn() -> u32 + use<'a> {
    move || *x
}

#[track]
pub fn nothing(x: &u32) -> impl Sized + use<> {
    *x + 1
}

#[track(+err)]
pub fn perhaps<'a, T: Copy>(x: &'a [T], y: &str) -> Result<impl Iterator<Item = T> + use<'a, T>, String> {
    if y.is_empty() {
        return Err(y.to_owned());
    }
    Ok(x.iter().copied())
}

pub fn exercise() -> String {
    let x = 1;
    let f = {
        let y = 2;
        closure(&x, &y)
    };
    let iterator = {
        let y = String::from("y");
        perhaps(&[1, 2], &y).map(Iterator::count)
    };
    let _sized = {
        let z = 3;
        nothing(&z)
    };
    format!("{} {:?}", f(), iterator)
}
