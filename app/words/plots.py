"""The words on and around plots: axes, readouts and the buttons that zoom and save."""

BROWSER = {
    "plot_x": "computing time, seconds",
    "plot_y": "tokens written",
    "plot_rate": "tokens a second, over the last 2 s",
    "plot_tokens": "Tokens",
    "plot_speed": "Tokens/s",
    "plot_table": "{lane}: {tokens} tokens in {seconds} s",
    "plot_moment": "{seconds} s · step {step}",
    "plot_lines": "Lines: press one to hide or show it",
    "plot_tools": "Zoom and save",
    "plot_room": "Plot: move over it to read values, click to go to a step, drag to zoom",
    "plot_closer": "Zoom in",
    "plot_farther": "Zoom out",
    "plot_all": "Show all",
    "plot_save": "Save…",
    "plot_svg": "Drawing, svg",
    "plot_png": "Picture, png",
    "plot_csv": "Numbers, csv",
    "plot_failed": "The plots could not be loaded; these are the numbers. Reload the page to try again.",
    "plot_not_packed": "The plots could not be added to the file: it shows their numbers as tables.",
}
