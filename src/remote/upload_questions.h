// What is said to a server about an upload, beside its parts.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "remote/object.h"
#include "remote/store.h"

namespace evenkeel {

// In all of these, `while_waiting` is called every 50 ms of a wait; what it throws ends the wait.

// Throws Error (kInvalid) for a URL that no object can be written to.
Address bucket_address(const std::string& url);
// The name that the server gives the upload.
std::string begin_upload(const Address& object, const std::shared_ptr<Store>& store,
                         const std::function<void()>& while_waiting);
// The object appears. False: an answer was lost, and the server does not know the upload (now).
bool complete_upload(const Address& object, const std::shared_ptr<Store>& store,
                     const std::string& id, const std::string& parts,
                     const std::function<void()>& while_waiting);
// An answer is not waited for for long.
void drop_upload(const Address& object, const std::shared_ptr<Store>& store,
                 const std::string& id) noexcept;
// Tells the object of that name from others: its ETag, date and size, "none" where there is none.
// Empty: it may not be read, or the server does not answer.
std::string object_version(const Address& object, const std::shared_ptr<Store>& store,
                           const std::function<void()>& while_waiting);

}  // namespace evenkeel
