// SPDX-License-Identifier: Apache-2.0
//! iceoryx2's publisher and subscriber of bytes, as functions that C can call. Each process has one
//! `Side`. The publisher's memory is POSIX shared memory; the files by which the sides find each
//! other lie in a directory of the benchmark's.
//!
//! All functions that return an int: 0, or -1.

use iceoryx2::config::Config;
use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{ipc, set_log_level, LogLevel, SignalHandlingMode};
use iceoryx2::sample_mut::SampleMut;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use std::ffi::{c_char, c_int, c_void, CStr};

type Bytes = [u8];

pub struct Side {
    // In the order in which they have to go.
    sample: Option<SampleMut<ipc::Service, Bytes, ()>>,
    publisher: Option<Publisher<ipc::Service, Bytes, ()>>,
    subscriber: Option<Subscriber<ipc::Service, Bytes, ()>>,
    service: PortFactory<ipc::Service, Bytes, ()>,
    node: Node<ipc::Service>,
}

fn open(directory: &str) -> Option<Side> {
    let mut config = Config::default();
    config.global.set_root_path(&directory.try_into().ok()?);
    let node = NodeBuilder::new()
        .config(&config)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<ipc::Service>()
        .ok()?;
    let service = node
        .service_builder(&"bench".try_into().ok()?)
        .publish_subscribe::<Bytes>()
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .subscriber_max_buffer_size(1)
        .subscriber_max_borrowed_samples(1)
        .enable_safe_overflow(true)
        .open_or_create()
        .ok()?;
    Some(Side {
        sample: None,
        publisher: None,
        subscriber: None,
        service,
        node,
    })
}

/// # Safety
/// directory: a string; it exists.
#[no_mangle]
pub unsafe extern "C" fn iceoryx2_open(directory: *const c_char) -> *mut Side {
    set_log_level(LogLevel::Fatal);
    match CStr::from_ptr(directory).to_str().ok().and_then(open) {
        Some(side) => Box::into_raw(Box::new(side)),
        None => std::ptr::null_mut(),
    }
}

/// # Safety
/// side: of iceoryx2_open().
#[no_mangle]
pub unsafe extern "C" fn iceoryx2_subscribe(side: *mut Side) -> c_int {
    (*side).subscriber = (*side).service.subscriber_builder().create().ok();
    if (*side).subscriber.is_some() {
        0
    } else {
        -1
    }
}

/// The largest object has size_max bytes.
///
/// # Safety
/// side: of iceoryx2_open().
#[no_mangle]
pub unsafe extern "C" fn iceoryx2_publish(side: *mut Side, size_max: usize) -> c_int {
    (*side).publisher = (*side)
        .service
        .publisher_builder()
        .initial_max_slice_len(size_max)
        .max_loaned_samples(1)
        .create()
        .ok();
    if (*side).publisher.is_some() {
        0
    } else {
        -1
    }
}

/// Copies an object into the publisher's memory.
///
/// # Safety
/// side: published; data: size bytes.
#[no_mangle]
pub unsafe extern "C" fn iceoryx2_put(side: *mut Side, data: *const c_void, size: usize) -> c_int {
    let bytes = std::slice::from_raw_parts(data as *const u8, size);
    let loan = (*side)
        .publisher
        .as_ref()
        .and_then(|publisher| publisher.loan_slice_uninit(size).ok());
    (*side).sample = loan.map(|sample| sample.write_from_slice(bytes));
    if (*side).sample.is_some() {
        0
    } else {
        -1
    }
}

/// Sends what was put.
///
/// # Safety
/// side: as above.
#[no_mangle]
pub unsafe extern "C" fn iceoryx2_send(side: *mut Side) -> c_int {
    match (*side).sample.take().map(|sample| sample.send()) {
        Some(Ok(1)) => 0,
        _ => -1,
    }
}

/// Drops what was put and not sent.
///
/// # Safety
/// side: as above.
#[no_mangle]
pub unsafe extern "C" fn iceoryx2_drop(side: *mut Side) {
    (*side).sample = None;
}

/// Gives look what was sent last, and lets it go.
///
/// # Safety
/// side: subscribed.
#[no_mangle]
pub unsafe extern "C" fn iceoryx2_take(
    side: *mut Side,
    look: extern "C" fn(*const c_void, usize) -> u64,
) -> c_int {
    match (*side)
        .subscriber
        .as_ref()
        .and_then(|subscriber| subscriber.receive().ok())
        .flatten()
    {
        Some(sample) => {
            look(
                sample.payload().as_ptr() as *const c_void,
                sample.payload().len(),
            );
            0
        }
        None => -1,
    }
}

/// Closes, and removes what a side that ended without this has left.
///
/// # Safety
/// side: of iceoryx2_open(), or NULL; it is none any more.
#[no_mangle]
pub unsafe extern "C" fn iceoryx2_close(side: *mut Side) {
    if !side.is_null() {
        let _ = (*side).node.try_cleanup_dead_nodes();
        drop(Box::from_raw(side));
    }
}
