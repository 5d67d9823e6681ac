"""Programs written by hand as a compiler writes them, to have its rarer forms at will."""

HEADER = "HloModule jit_step, is_scheduled=true, num_partitions={devices}\n\n"
SUM = """\
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

"""


def written(*lines: str, before: str = "", devices: int = 8) -> str:
    """The text of a program whose entry computation gets p, float32 [32, 8], and runs `lines`."""
    body = "\n".join(f"  {line}" for line in ("%p = f32[32,8]{1,0} parameter(0)", *lines))
    entry = f"ENTRY %main (p: f32[32,8]) -> f32[32,8] {{\n{body}\n}}\n"
    return HEADER.format(devices=devices) + SUM + before + entry
