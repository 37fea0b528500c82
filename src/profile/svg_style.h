// How the picture looks. Plain rules, so that programs which know less of CSS than browsers draw
// the light picture; colours tell kinds apart for colour-blind readers, too (Okabe and Ito).
#pragma once

#include <string_view>

namespace evenkeel {

inline constexpr std::string_view kSvgStyle = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:12px;fill:#59636e}
.title{font-size:18px;font-weight:600;fill:#1f2328}
.lead{font-size:13px;fill:#1f2328}
.name{font-size:14px;font-weight:600;fill:#1f2328}
.tick{font-size:11px}
.right{text-anchor:end}
.middle{text-anchor:middle}
.bold{font-weight:600;fill:#1f2328}
.paper{fill:#fff}
.grid{fill:none;stroke:#e4e7eb;stroke-width:1}
.floor{fill:none;stroke:#8b949e;stroke-width:1}
.anon{fill:#0072b2}
.file{fill:#e69f00}
.shmem{fill:#009e73}
.cache{fill:none;stroke:#cc79a7;stroke-width:2;stroke-linejoin:round}
.budget{fill:none;stroke:#d55e00;stroke-width:1.5;stroke-dasharray:6 4}
.under{fill:none;stroke:#fff;stroke-width:4;stroke-opacity:.65}
.over{fill:url(#evenkeel-over)}
.hatch{fill:none;stroke:#d55e00;stroke-width:1}
.tint{fill:#d55e00;fill-opacity:.16}
.alarm{font-weight:600;fill:#b34700}
.halo{stroke:#fff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}
.mark{fill:none;stroke:#8b949e;stroke-width:1;stroke-dasharray:1 2}
.rate{fill:#8b949e}
@media (prefers-color-scheme:dark){
text{fill:#9198a1}
.title,.lead,.name,.bold{fill:#f0f3f6}
.paper{fill:#0d1117}
.grid{stroke:#242a33}
.floor,.mark{stroke:#656d76}
.anon{fill:#2b8fd0}
.budget{stroke:#f27b2c}
.tint{fill:#f27b2c;fill-opacity:.22}
.under{stroke:#0d1117}
.alarm{fill:#ff9a56}
.halo{stroke:#0d1117}
.rate{fill:#656d76}
}
</style>
<defs><pattern id="evenkeel-over" width="7" height="7" patternUnits="userSpaceOnUse"><rect class="tint" width="7" height="7"/><path class="hatch" d="M-1 1l2-2M0 7l7-7M6 8l2-2"/></pattern></defs>
)";

}  // namespace evenkeel
