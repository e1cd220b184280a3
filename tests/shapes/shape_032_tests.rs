//! shape: 32
//! title: above and below `#[test]` and `#[tokio::test]`
//! build: tests
//! lost: clippy::unnecessary_wraps in err
use shape_support::tokio;

#[test]
fn a_begins() {
    shape_support::harness::begin();
}

#[track]
#[test]
fn above_test() {
    assert_eq!("a".len(), 1);
}

#[test]
#[track(+err)]
fn below_test() -> Result<(), String> {
    Ok(())
}

#[test]
#[track]
#[should_panic(expected = "wanted")]
fn panics() {
    panic!("wanted");
}

#[track]
#[tokio::test]
async fn above_tokio_test() {
    tokio::task::yield_now().await;
}

#[tokio::test]
#[track(+err)]
async fn below_tokio_test() -> Result<(), String> {
    tokio::task::yield_now().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[track]
async fn on_several_threads() {
    tokio::task::yield_now().await;
}

#[test]
fn z_ends() {
    shape_support::harness::end(&[
        ("above_test", 1),
        ("below_test", 1),
        ("panics", 1),
        ("above_tokio_test", 1),
        ("below_tokio_test", 1),
        ("on_several_threads", 1),
    ]);
}
