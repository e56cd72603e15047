"""What the functions of the library return: typed objects that know their JSON, their table and whether they are good news.

A result holds plain data, the very JSON that the command line prints, and gives the numbers that matter by name. Tables and figures are
made from it at the edge (`verify.report`): by `show`, by notebooks through `_repr_html_`, by `draw`.
"""
