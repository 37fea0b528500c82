// Requests about an upload, other than its parts.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "remote/store.h"

namespace evenkeel {

// In all of these, `while_waiting` is called every 50 ms of a wait; an exception from it ends the
// wait.

// Throws Error (kInvalid) for a URL that no object can be written to.
Address bucket_address(const std::string& url);
// Returns the ID that the server gives to the upload.
std::string begin_upload(const Address& object, const std::shared_ptr<Store>& store,
                         const std::function<void()>& while_waiting);
// Makes the object appear. False: an answer was lost, and the server no longer knows the upload.
bool complete_upload(const Address& object, const std::shared_ptr<Store>& store,
                     const std::string& id, const std::string& parts,
                     const std::function<void()>& while_waiting);
// Waits only a short time for an answer.
void drop_upload(const Address& object, const std::shared_ptr<Store>& store,
                 const std::string& id) noexcept;
// Identifies the current object of that name: its ETag, date and size, or "none" if there is none.
// Empty if it may not be read or the server does not answer.
std::string object_version(const Address& object, const std::shared_ptr<Store>& store,
                           const std::function<void()>& while_waiting);

}  // namespace evenkeel
