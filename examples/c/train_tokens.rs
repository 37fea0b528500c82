//! The loop of train_tokens.c in Rust, without a crate: the functions of evenkeel.h are declared here.
//!
//!   rustc --edition=2021 train_tokens.rs -l evenkeel     (and -L, where it is not in a standard folder)
//!   ./train_tokens FILE [STEPS]
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::null;

#[repr(C)]
struct TokensOptions {
    size: usize,
    budget: *const c_void,
    engine: *const c_char,
    page_cache: *const c_char,
    dtype: *const c_char,
    cache: u64,
    // The struct may end here: the fields that follow in evenkeel.h then have their defaults.
}

#[repr(C)]
struct LoaderOptions {
    size: usize,
    batch_size: u64,
    block_size: u64,
    order: *const c_char,
    seed: u64,
    rank: u64,
    world: u64,
    prefetch: u64,
    dtype: *const c_char,
    steps: u64, // and more
}

#[repr(C)]
struct Batch {
    size: usize,
    step: u64,
    rows: u64,
    columns: u64,
    item_bytes: u64,
    x: *const i32,
    y: *const i32,
}

const OK: c_int = 0;
const END: c_int = 1;

extern "C" {
    fn evenkeel_message() -> *const c_char;
    fn evenkeel_budget_new(text: *const c_char, budget: *mut *mut c_void) -> c_int;
    fn evenkeel_budget_free(budget: *mut c_void);
    fn evenkeel_tokens_open(
        path: *const c_char,
        options: *const TokensOptions,
        tokens: *mut *mut c_void,
    ) -> c_int;
    fn evenkeel_tokens_free(tokens: *mut c_void);
    fn evenkeel_token_loader_new(
        tokens: *const *mut c_void,
        weights: *const f64,
        count: usize,
        options: *const LoaderOptions,
        loader: *mut *mut c_void,
    ) -> c_int;
    fn evenkeel_token_loader_next(loader: *mut c_void, batch: *mut Batch) -> c_int;
    fn evenkeel_token_loader_free(loader: *mut c_void);
}

/// A handle that is freed when it goes out of scope.
struct Handle {
    pointer: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

impl Handle {
    fn new(
        free: unsafe extern "C" fn(*mut c_void),
        make: impl FnOnce(*mut *mut c_void) -> c_int,
    ) -> Result<Handle, String> {
        let mut handle = Handle { pointer: std::ptr::null_mut(), free };
        let code = make(&mut handle.pointer);
        if code == OK { Ok(handle) } else { Err(message()) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { (self.free)(self.pointer) }
    }
}

fn message() -> String {
    unsafe { CStr::from_ptr(evenkeel_message()) }.to_string_lossy().into_owned()
}

fn train(path: &str, steps: u64) -> Result<(), String> {
    let (text, path) = (c"8MiB", CString::new(path).map_err(|e| e.to_string())?);
    let budget =
        Handle::new(evenkeel_budget_free, |out| unsafe { evenkeel_budget_new(text.as_ptr(), out) })?;
    let data = TokensOptions {
        size: size_of::<TokensOptions>(),
        budget: budget.pointer,
        engine: null(),
        page_cache: null(),
        dtype: null(),
        cache: 0,
    };
    let tokens = Handle::new(evenkeel_tokens_free, |out| unsafe {
        evenkeel_tokens_open(path.as_ptr(), &data, out)
    })?;
    let options = LoaderOptions {
        size: size_of::<LoaderOptions>(),
        batch_size: 4,
        block_size: 1024,
        order: c"covering".as_ptr(),
        seed: 1337,
        rank: 0,
        world: 1,
        prefetch: 0,
        dtype: c"int32".as_ptr(),
        steps,
    };
    let loader = Handle::new(evenkeel_token_loader_free, |out| unsafe {
        evenkeel_token_loader_new(&tokens.pointer, null(), 1, &options, out)
    })?;

    let mut sum: u64 = 0xcbf29ce484222325;
    let mut batch: Batch = unsafe { std::mem::zeroed() };
    batch.size = size_of::<Batch>();
    loop {
        match unsafe { evenkeel_token_loader_next(loader.pointer, &mut batch) } {
            OK => {}
            END => break,
            _ => return Err(message()),
        }
        let count = (batch.rows * batch.columns) as usize;
        let (x, y) = unsafe {
            (std::slice::from_raw_parts(batch.x, count), std::slice::from_raw_parts(batch.y, count))
        };
        for (input, target) in x.iter().zip(y) {
            sum = (sum ^ *input as u32 as u64).wrapping_mul(0x100000001b3);
            sum = (sum ^ *target as u32 as u64).wrapping_mul(0x100000001b3);
        }
    }
    println!("{} steps, checksum {sum:016x}", batch.step + 1);
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let steps = arguments.get(2).map_or(Ok(100), |text| text.parse());
    // With 0 steps, the loader would not end.
    let (Some(path), Ok(steps @ 1..)) = (arguments.get(1), steps) else {
        eprintln!("usage: train_tokens FILE [STEPS]");
        std::process::exit(2);
    };
    if let Err(message) = train(path, steps) {
        eprintln!("train_tokens: {message}");
        std::process::exit(1);
    }
}
